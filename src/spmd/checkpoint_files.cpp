#include "spmd/checkpoint_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "store/index_reader.h"
#include "store/safetensors.h"

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

struct ReadHeader {
  std::vector<store::StoredTensor> tensors;
  uint64_t data_begin = 0;
  uint32_t sum = 0;
};

ReadHeader read_header(const DataFile& file) {
  std::byte first[8] = {};
  const uint64_t size = file.size();
  if (size < 8 || !file.read_at(0, first, 8)) fail(Status::kProtocol, "\"{}\" is cut: it has no header", file.path());
  const uint64_t header = store::header_size(first, size, file.path());
  std::string text(header, '\0');
  if (!file.read_at(8, text.data(), header)) fail(Status::kProtocol, "\"{}\" became shorter", file.path());
  const uint32_t sum = store::crc32_of(store::crc32_of(0, first, 8), text.data(), text.size());
  return {store::parse_header(text, size - 8 - header, file.path()), 8 + header, sum};
}

// Files of other writers may be symbolic links: a download cache is a folder of links.
std::shared_ptr<const DataFile> need_file(const std::string& path) {
  const bool is_ours = is_name_of_ours(path.substr(path.rfind('/') + 1));
  auto file = DataFile::open(path, is_ours ? Links::kRefused : Links::kFollowed);
  if (!file) fail(Status::kNotFound, "\"{}\" is not there", path);
  return file;
}

using Headers = std::map<std::string, std::vector<store::StoredTensor>>;

// The safetensors files in a folder that other writers made, and, if they have an index, the entries of each.
store::WeightMap files_of_others(const std::string& folder) {
  if (const auto listed = DataFile::open(path_in(folder, kOtherIndex), Links::kFollowed)) {
    return store::read_weight_map(read_text(*listed), listed->path());
  }
  store::WeightMap found;
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
void check_entries(const std::string& folder, const store::WeightMap& map, const Headers& headers) {
  if (map.entries.empty()) return;
  std::set<std::pair<std::string_view, std::string_view>> there;
  for (const auto& [name, tensors] : headers) {
    for (const store::StoredTensor& tensor : tensors) there.emplace(name, tensor.name);
  }
  for (const auto& [entry, file] : map.entries) {
    if (there.contains({*file, entry})) continue;
    fail(Status::kProtocol, "\"{}\": entry \"{}\" is not in \"{}\", where the index has it: fetch both anew",
         path_in(folder, kOtherIndex), entry.substr(0, 80), *file);
  }
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

void check_bools(const std::byte* elements, uint64_t size, const std::string& file, const std::string& path) {
  for (uint64_t i = 0; i < size; ++i) {
    if (elements[i] > std::byte{1})
      fail(Status::kProtocol, "\"{}\": entry \"{}\" holds the bool {}, which must be 0 or 1", file, path,
           static_cast<int>(elements[i]));
  }
}

// Reads runs of a stored box one after the other, and checks each piece of which it reads anything.
class RunReader {
 public:
  RunReader(const DataFile& file, uint64_t begin, const store::StoredEntry& entry, const store::StoredBox& box,
            const std::string& path, ReadBlock& block)
      : file_(file),
        begin_(begin),
        size_(store::bytes_of(box.extent, entry.dtype).value_or(0)),
        has_bools_(entry.dtype == Dtype::kBool),
        sums_(box.pieces),
        path_(path),
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
  const std::vector<uint32_t>& sums_;
  const std::string& path_;
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

std::string read_index(const std::string& folder) {
  store::WeightMap map;
  const PathKind kind = kind_of_path(folder);
  if (kind == PathKind::kNothing) fail(Status::kNotFound, "\"{}\" is not there", folder);
  if (kind == PathKind::kOther) fail(Status::kInvalidState, "\"{}\" is no folder and no file", folder);
  if (kind == PathKind::kFile) {
    const size_t slash = folder.rfind('/');
    map.files.insert(slash == std::string::npos ? folder : folder.substr(slash + 1));
  } else if (const auto file = DataFile::open(path_in(folder, store::kIndexName))) {
    return read_text(*file);
  } else {
    map = files_of_others(folder);
  }
  Headers headers;
  std::map<std::string, uint32_t> sums;
  for (const std::string& name : map.files) {
    ReadHeader header = read_header(*need_file(path_in(folder_of(folder), name)));
    headers[name] = std::move(header.tensors);
    sums[name] = header.sum;
  }
  check_entries(folder, map, headers);
  store::Index index = store::index_of_files(headers);
  index.header_sums = std::move(sums);
  return store::print_index(index);
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

StoredElements::StoredElements(std::string folder, store::Index index)
    : files_(std::move(folder)), index_(std::move(index)) {
  for (const auto& [path, entry] : index_.entries) {
    for (const store::StoredBox& box : entry.boxes) {
      if (!headers_.contains(box.file)) headers_.emplace(box.file, header_of(box.file));
    }
  }
}

StoredElements::Header StoredElements::header_of(const std::string& name) const {
  const auto file = files_.open(name);
  ReadHeader read = read_header(*file);
  const auto sum = index_.header_sums.find(name);
  if (sum == index_.header_sums.end() || sum->second != read.sum) {
    fail(Status::kProtocol, "\"{}\" is damaged: its header is not the one that the index says", file->path());
  }
  Header header{read.data_begin, {}};
  for (store::StoredTensor& tensor : read.tensors) header.tensors.emplace(tensor.name, std::move(tensor));
  return header;
}

std::shared_ptr<const DataFile> StoredElements::find(const std::string& path, const store::StoredEntry& entry,
                                                     const store::StoredBox& box, uint64_t& begin) const {
  const Header& header = headers_.at(box.file);
  auto file = files_.open(box.file);
  const auto tensor = header.tensors.find(box.name);
  if (tensor == header.tensors.end() || tensor->second.dtype != entry.dtype || tensor->second.other != entry.other ||
      tensor->second.shape != box.extent) {
    fail(Status::kProtocol, "\"{}\" does not have entry \"{}\" as the index says", file->path(), path);
  }
  begin = header.data_begin + tensor->second.begin;
  return file;
}

void StoredElements::read_box(const std::string& path, const store::StoredEntry& entry, const store::StoredBox& stored,
                              const Box& wanted, const Destination& to, ReadBlock& block) const {
  const Box held{stored.offset, stored.extent};
  const Box common = intersection(held, wanted);
  if (common.empty()) return;
  uint64_t begin = 0;
  const auto file = find(path, entry, stored, begin);
  RunReader reader(*file, begin, entry, stored, path, block);
  for_each_run(held, common, wanted, to.strides, dtype_size(entry.dtype),
               [&](uint64_t from, int64_t place, uint64_t count) {
                 reader.read(from, count, to.first == nullptr ? nullptr : to.first + place);
               });
  reader.finish();
}

void StoredElements::check_dtype(const std::string& path) const {
  const store::StoredEntry& entry = index_.entries.at(path);
  if (entry.other == nullptr) return;
  const std::string file = entry.boxes.empty() ? std::string() : fmt::format("\"{}\": ", entry.boxes[0].file);
  fail(Status::kUnsupported, "{}entry \"{}\" is of dtype {}: {}", file, path, entry.other->name, store::kDtypesRead);
}

void StoredElements::read(const std::string& path, const Box& box, const Destination& to, ReadBlock& block) const {
  check_dtype(path);
  const store::StoredEntry& entry = index_.entries.at(path);
  for (const store::StoredBox& stored : entry.boxes) read_box(path, entry, stored, box, to, block);
}

void StoredElements::check() const {
  ReadBlock block;
  for (const auto& [path, entry] : index_.entries) {
    for (const store::StoredBox& stored : entry.boxes) {
      uint64_t begin = 0;
      const auto file = find(path, entry, stored, begin);
      if (entry.other != nullptr) continue;
      RunReader reader(*file, begin, entry, stored, path, block);
      reader.read(0, store::bytes_of(stored.extent, entry.dtype).value_or(0), nullptr);
    }
  }
}

}  // namespace distag::spmd
