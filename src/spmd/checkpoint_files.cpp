#include "spmd/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "store/index_reader.h"
#include "store/safetensors.h"
#include "store/tree.h"

namespace distag::spmd {
namespace {

using layout::Box;
using store::kPiece;

constexpr const char* kOtherIndex = "model.safetensors.index.json";
constexpr uint64_t kMostIndex = uint64_t{1} << 30;

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string read_text(const DataFile& file) {
  const uint64_t size = file.size();
  if (size > kMostIndex) fail(Status::kProtocol, "\"{}\" is too large for an index", file.path());
  std::string text(size, '\0');
  if (!file.read_at(0, text.data(), text.size())) fail(Status::kProtocol, "\"{}\" became shorter", file.path());
  return text;
}

// Calls visit(tensor, begin) for each tensor of a header, with the place of its elements in the file. Gives the crc of
// all bytes before the elements.
template <typename Visit>
uint32_t read_header(const DataFile& file, Visit visit) {
  std::byte first[8] = {};
  const uint64_t size = file.size();
  if (size < 8 || !file.read_at(0, first, 8)) fail(Status::kProtocol, "\"{}\" is cut: it has no header", file.path());
  const uint64_t header = store::header_size(first, size, file.path());
  std::string text(header, '\0');
  if (!file.read_at(8, text.data(), header)) fail(Status::kProtocol, "\"{}\" became shorter", file.path());
  const uint64_t begin = 8 + header;
  store::parse_header(text, size - begin, file.path(),
                      [&](const store::StoredTensor& tensor) { visit(tensor, begin + tensor.begin); });
  return store::crc32_of(store::crc32_of(0, first, 8), text.data(), text.size());
}

// Files of other writers may be symbolic links: a download cache is a folder of links.
std::shared_ptr<const DataFile> need_file(const std::string& path) {
  const bool is_ours = is_name_of_ours(path.substr(path.rfind('/') + 1));
  auto file = DataFile::open(path, is_ours ? Links::kRefused : Links::kFollowed);
  if (!file) fail(Status::kNotFound, "\"{}\" is not there", path);
  return file;
}

// Our index of a folder; nullptr: it has none, or a file is named.
std::shared_ptr<const DataFile> open_index(const std::string& folder) {
  const PathKind kind = kind_of_path(folder);
  if (kind == PathKind::kNothing) fail(Status::kNotFound, "\"{}\" is not there", folder);
  if (kind == PathKind::kOther) fail(Status::kInvalidState, "\"{}\" is no folder and no file", folder);
  return kind == PathKind::kFile ? nullptr : DataFile::open(path_in(folder, store::kIndexName));
}

// The safetensors files in a folder that other writers made, and, if they have an index, the entries of each.
store::WeightMap files_of_others(const std::string& folder) {
  store::WeightMap found;
  if (kind_of_path(folder) == PathKind::kFile) {
    found.files.insert(folder.substr(folder.rfind('/') + 1));
    return found;
  }
  if (const auto listed = DataFile::open(path_in(folder, kOtherIndex), Links::kFollowed)) {
    return store::read_weight_map(read_text(*listed), listed->path());
  }
  for (std::string& name : list_folder(folder)) {
    if (ends_with(name, ".safetensors") && !is_name_of_ours(name)) found.files.insert(std::move(name));
  }
  if (found.files.size() != 1) {
    fail(Status::kNotFound, "\"{}\" has no {}, no {}, and {} files *.safetensors: name one of these", folder,
         store::kIndexName, kOtherIndex, found.files.size());
  }
  return found;
}

// Files of which some are older than their index would be loaded in part.
void check_entries(const std::string& folder, const store::WeightMap& map, const store::Index& index) {
  for (const auto& [name, file] : map.entries) {
    const store::StoredEntry* const entry = index.find(store::escaped(name));
    if (entry != nullptr && entry->boxes[0].file->first == *file) continue;
    fail(Status::kProtocol, "\"{}\": entry \"{}\" is not in \"{}\", where the index has it: fetch both anew",
         path_in(folder, kOtherIndex), name.substr(0, 80), *file);
  }
}

store::Index index_of_others(const std::string& folder, const OpenFiles& files) {
  const store::WeightMap map = files_of_others(folder);
  store::Index index;
  for (const std::string& name : map.files) {
    store::StoredFile& file = *index.files.try_emplace(name).first;
    file.second = read_header(
        *files.open(name), [&](const store::StoredTensor& tensor, uint64_t begin) { index.add(tensor, file, begin); });
  }
  if (const store::StoredEntry* const twin = index.sort()) {
    fail(Status::kProtocol, "\"{}\" is damaged, or no checkpoint: entry \"{}\" is in another file, too",
         twin->boxes[0].file->first, twin->boxes[0].name);
  }
  check_entries(folder, map, index);
  uint32_t id = 0;
  for (const auto& [name, sum] : index.files) {
    id = store::crc32_of(store::crc32_of(id, name.data(), name.size()), &sum, sizeof sum);
  }
  index.id = fmt::format("{:08x}", id);
  return index;
}

// Visits the runs of elements that lie without a gap both in a box as it is stored and where they go, with offsets in
// bytes. Offsets in the stored box ascend.
template <typename Visit>
void for_each_run(const Box& stored, const Box& common, const Box& wanted, const Dims& strides, size_t item,
                  Visit visit) {
  size_t outer = common.extent.size();  // dims from here on are in one run
  int64_t run = 1;
  int64_t run_stored = 1;
  while (outer > 0 && run_stored == run && (strides[outer - 1] == run || common.extent[outer - 1] == 1)) {
    --outer;
    run *= common.extent[outer];
    run_stored *= stored.extent[outer];
  }
  Dims at;
  at.resize(common.extent.size());
  for (;;) {
    int64_t from = 0;
    int64_t to = 0;
    for (size_t d = 0; d < at.size(); ++d) {
      const int64_t place = common.offset[d] + at[d];
      from = from * stored.extent[d] + (place - stored.offset[d]);
      to += (place - wanted.offset[d]) * strides[d];
    }
    const auto bytes = static_cast<int64_t>(item);
    visit(static_cast<uint64_t>(from * bytes), to * bytes, static_cast<uint64_t>(run * bytes));
    size_t d = outer;
    while (d > 0 && ++at[d - 1] == common.extent[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

void check_bools(const std::byte* elements, uint64_t size, const std::string& file, std::string_view path) {
  for (uint64_t i = 0; i < size; ++i) {
    if (elements[i] > std::byte{1})
      fail(Status::kProtocol, "\"{}\": entry \"{}\" holds the bool {}, which must be 0 or 1", file, path,
           static_cast<int>(elements[i]));
  }
}

// Reads runs of a stored box one after the other, and checks each piece of which it reads anything.
class RunReader {
 public:
  RunReader(const DataFile& file, const store::StoredEntry& entry, const store::StoredBox& box, ReadBlock& block)
      : file_(file),
        begin_(box.begin),
        size_(store::bytes_of(box.extent, entry.dtype).value_or(0)),
        has_bools_(entry.dtype == Dtype::kBool),
        sums_(box.pieces),
        path_(entry.path),
        block_(block) {}

  // Reads `count` bytes, beginning at `from`, which is behind the run before. `out` nullptr: they are only checked.
  // Bools are checked before they are at `out`, where any other number would be no bool.
  void read(uint64_t from, uint64_t count, std::byte* out) {
    while (count > 0) {
      if (from >= next_) go_to(from);
      uint64_t some = std::min(count, (from < next_ ? next_ : end_) - from);
      if (from < next_) {
        const std::byte* const bytes = block_.data() + (from - block_begin_);
        if (has_bools_) check_bools(bytes, some, file_.path(), path_);
        if (out != nullptr) std::memcpy(out, bytes, some);
      } else if (out != nullptr && !has_bools_ && (some >= kLeastDirect || next_ + some == end_)) {
        some = std::min(some, kBlock);
        fetch(out, some);
      } else {
        fill();
        continue;
      }
      if (out != nullptr) out += some;
      from += some;
      count -= some;
    }
  }

  // Reads what is left of the last piece, to check it.
  void finish() {
    while (!sums_.empty() && next_ < end_) fill();
  }

 private:
  static constexpr uint64_t kBlock = uint64_t{256} << 10;  // is in the cache from its reading to its check and copy
  static constexpr uint64_t kLeastDirect = uint64_t{32} << 10;  // shorter runs are copied out of a block

  void go_to(uint64_t from) {
    if (from >= end_) {
      finish();
      next_ = from / kPiece * kPiece;
      end_ = std::min(next_ + kPiece, size_);
      sum_ = 0;
    }
    if (sums_.empty()) next_ = from;
    while (next_ < from) fill();
  }

  void fill() {
    const uint64_t some = std::min(kBlock, end_ - next_);
    if (block_.size() < some) block_.resize(some);
    block_begin_ = next_;
    fetch(block_.data(), some);
  }

  void fetch(std::byte* out, uint64_t count) {
    if (!file_.read_at(begin_ + next_, out, count)) {
      fail(Status::kProtocol, "\"{}\" is cut within entry \"{}\"", file_.path(), path_);
    }
    next_ += count;
    if (sums_.empty()) return;
    sum_ = store::crc32_of(sum_, out, count);
    const uint64_t number = (end_ - 1) / kPiece;
    if (next_ == end_ && sum_ != sums_[number]) {
      fail(Status::kProtocol, "\"{}\" is damaged: entry \"{}\" has another crc32 in its bytes from {} on", file_.path(),
           path_, number * kPiece);
    }
  }

  const DataFile& file_;
  const uint64_t begin_;
  const uint64_t size_;
  const bool has_bools_;
  const std::span<const uint32_t> sums_;
  const std::string_view path_;
  ReadBlock& block_;
  uint64_t block_begin_ = 0;  // the block has the bytes from here to next_, if it was filled last
  uint64_t next_ = 0;
  uint64_t end_ = 0;  // of the piece
  uint32_t sum_ = 0;  // of the piece up to next_
};

}  // namespace

std::string path_in(const std::string& folder, const std::string& name) { return folder + "/" + name; }

std::string shard_name(const std::string& id, int64_t position, int64_t count) {
  return fmt::format("shard-{}-{:05}-of-{:05}.safetensors", id, position, count);
}

bool is_name_of_ours(const std::string& name) {
  const auto is_hex = [&](size_t first) {
    return name.size() >= first + 16 &&
           std::all_of(name.begin() + static_cast<ptrdiff_t>(first), name.begin() + static_cast<ptrdiff_t>(first) + 16,
                       [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  };
  if (name.rfind("shard-", 0) == 0) {  // shard-<16>-00000-of-00000.safetensors
    return name.size() == 6 + 16 + 15 + 12 && is_hex(6) && ends_with(name, ".safetensors") && name[22] == '-' &&
           name.compare(28, 4, "-of-") == 0;
  }
  const std::string index = std::string(store::kIndexName) + ".";
  return name.rfind(index, 0) == 0 && name.size() == index.size() + 16 && is_hex(index.size());
}

std::string folder_of(const std::string& folder) {
  if (kind_of_path(folder) != PathKind::kFile) return folder;
  const size_t slash = folder.rfind('/');
  return slash == std::string::npos ? "." : folder.substr(0, slash + 1);
}

store::Index read_index(const std::string& folder, const OpenFiles& files) {
  const auto file = open_index(folder);
  return file ? store::parse_index(read_text(*file), file->path()) : index_of_others(folder, files);
}

std::string read_index_text(const std::string& folder) {
  const auto file = open_index(folder);
  return file ? read_text(*file) : store::print_index(index_of_others(folder, OpenFiles(folder_of(folder))));
}

store::Index index_in(const std::string& folder) {
  try {
    if (const auto file = DataFile::open(path_in(folder, store::kIndexName))) {
      return store::parse_index(read_text(*file), file->path());
    }
  } catch (...) {
    if (current_error().status() == Status::kOutOfMemory) throw;
  }
  return {};
}

std::shared_ptr<const DataFile> OpenFiles::open(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto [entry, is_new] = seen_.try_emplace(name);
  Seen& seen = entry->second;
  seen.used = ++uses_;
  if (seen.file != nullptr) return seen.file;
  auto file = open_anew(path_in(folder_, name));
  const FileIdentity identity = file->identity();
  if (!is_new && seen.identity != FileIdentity() && identity != seen.identity) {
    fail(Status::kNotFound, "\"{}\" is no longer what it was: a later save took its place, load that", file->path());
  }
  seen.identity = identity;
  seen.file = file;
  ++open_;
  return file;
}

std::shared_ptr<const DataFile> OpenFiles::open_anew(const std::string& path) const {
  for (;;) {
    while (open_ >= most_) close_oldest();
    try {
      return need_file(path);
    } catch (const Error& error) {
      if (error.status() != Status::kOutOfMemory || open_ == 0) throw;
    }
    most_ = std::max<size_t>(1, open_ / 2);  // the other half is for the host
  }
}

// A thread that is reading the file keeps it open until it is done.
void OpenFiles::close_oldest() const {
  auto oldest = seen_.end();
  for (auto entry = seen_.begin(); entry != seen_.end(); ++entry) {
    const bool is_open = entry->second.file != nullptr;
    if (is_open && (oldest == seen_.end() || entry->second.used < oldest->second.used)) oldest = entry;
  }
  if (oldest == seen_.end()) return;
  oldest->second.file.reset();
  --open_;
}

StoredElements::StoredElements(std::unique_ptr<const OpenFiles> files, store::Index index)
    : files_(std::move(files)), index_(std::move(index)) {
  place_boxes();
}

void StoredElements::place_boxes() {
  struct Wanted {
    const store::StoredEntry* entry;
    store::StoredBox* box;
    std::string_view name() const { return box->name; }
    std::string_view file() const { return box->file->first; }
  };
  std::vector<Wanted> all;
  for (const store::StoredEntry& entry : index_.entries) {
    for (store::StoredBox& box : entry.boxes) {
      if (box.begin == store::kNoPlace) all.push_back({&entry, &box});
    }
  }
  std::ranges::sort(all, {}, [](const Wanted& wanted) { return std::pair(wanted.file(), wanted.name()); });
  for (auto next = all.begin(); next != all.end();) {
    const store::StoredFile& stored = *next->box->file;
    const auto end = std::ranges::upper_bound(next, all.end(), next->file(), {}, &Wanted::file);
    const auto file = files_->open(stored.first);
    const uint32_t sum = read_header(*file, [&](const store::StoredTensor& tensor, uint64_t begin) {
      const std::string_view name = tensor.name;
      for (auto wanted = std::ranges::lower_bound(next, end, name, {}, &Wanted::name);
           wanted != end && wanted->name() == name; ++wanted) {
        const bool is_as_said = tensor.dtype == wanted->entry->dtype && tensor.other == wanted->entry->other &&
                                std::ranges::equal(tensor.shape, wanted->box->extent);
        if (is_as_said) wanted->box->begin = begin;
      }
    });
    if (!stored.second || *stored.second != sum) {
      fail(Status::kProtocol, "\"{}\" is damaged: its header is not the one that the index says", file->path());
    }
    next = end;
  }
}

std::shared_ptr<const DataFile> StoredElements::open(const store::StoredEntry& entry,
                                                     const store::StoredBox& box) const {
  auto file = files_->open(box.file->first);
  if (box.begin == store::kNoPlace) {
    fail(Status::kProtocol, "\"{}\" does not have entry \"{}\" as the index says", file->path(), entry.path);
  }
  return file;
}

void StoredElements::read_box(const store::StoredEntry& entry, const store::StoredBox& stored, const Box& wanted,
                              const Destination& to, ReadBlock& block) const {
  const Box held{Dims(stored.offset), Dims(stored.extent)};
  const Box common = intersection(held, wanted);
  if (common.empty()) return;
  const auto file = open(entry, stored);
  RunReader reader(*file, entry, stored, block);
  for_each_run(held, common, wanted, to.strides, dtype_size(entry.dtype),
               [&](uint64_t from, int64_t place, uint64_t count) {
                 reader.read(from, count, to.first == nullptr ? nullptr : to.first + place);
               });
  reader.finish();
}

void StoredElements::check_dtype(const store::StoredEntry& entry) const {
  if (entry.other == nullptr) return;
  const std::string file = entry.boxes.empty() ? std::string() : fmt::format("\"{}\": ", entry.boxes[0].file->first);
  fail(Status::kUnsupported, "{}entry \"{}\" is of dtype {}: {}", file, entry.path, entry.other->name,
       store::kDtypesRead);
}

void StoredElements::read(const store::StoredEntry& entry, const Box& box, const Destination& to,
                          ReadBlock& block) const {
  check_dtype(entry);
  for (const store::StoredBox& stored : entry.boxes) read_box(entry, stored, box, to, block);
}

void StoredElements::check() const {
  ReadBlock block;
  for (const store::StoredEntry& entry : index_.entries) {
    for (const store::StoredBox& stored : entry.boxes) {
      const auto file = open(entry, stored);
      if (entry.other != nullptr) continue;
      RunReader reader(*file, entry, stored, block);
      reader.read(0, store::bytes_of(stored.extent, entry.dtype).value_or(0), nullptr);
    }
  }
}

}  // namespace distag::spmd
