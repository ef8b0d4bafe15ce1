#include "store/index_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "store/json.h"

namespace distag::store {
namespace {

using nlohmann::json;
constexpr size_t kMostBoxes = 4096;  // as many as members of a mesh

[[noreturn]] void refuse_entry(const std::string& file, std::string_view path, const std::string& reason) {
  refuse(file, fmt::format("entry \"{}\" {}", path.substr(0, 80), reason));
}

void check_file_name(const std::string& name, const std::string& file, std::string_view path) {
  const bool is_name = !name.empty() && name[0] != '.' && name.find('/') == std::string::npos && name.size() <= 255 &&
                       name.find('\0') == std::string::npos;
  if (!is_name) refuse_entry(file, path, "lies in a file whose name is invalid or has a folder in it");
}

// Reads the version first, wherever it stands: fields of another version are unknown.
class VersionReader final : public Handler {
 public:
  using Handler::Handler;
  void check() const {
    if (version_ != 1) fail(Status::kUnsupported, "\"{}\" has another version: 1 is read", file());
  }
  bool number_unsigned(number_unsigned_t number) override {
    if (is_version_ && depth_ == 1) version_ = number;
    return other();
  }
  bool string(string_t&) override { return other(); }
  bool key(string_t& name) override {
    is_version_ = name == "version";
    return true;
  }
  bool start_object(size_t) override { return begin(); }
  bool start_array(size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

 protected:
  bool other() override {
    is_version_ = false;
    return true;
  }

 private:
  bool begin() {
    check_depth(++depth_);
    return other();
  }
  bool end() {
    --depth_;
    return true;
  }

  size_t depth_ = 0;
  bool is_version_ = false;
  uint64_t version_ = 0;
};

// Counts the ranges by which boxes cut a dim. They must follow one another without gaps.
size_t count_cuts(const std::vector<const StoredBox*>& boxes, size_t dim, int64_t size, const std::string& file,
                  std::string_view path) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const StoredBox* box : boxes) ranges.emplace_back(box->offset[dim], box->offset[dim] + box->extent[dim]);
  std::sort(ranges.begin(), ranges.end());
  ranges.erase(std::unique(ranges.begin(), ranges.end()), ranges.end());
  int64_t end = 0;
  for (const auto& [first, next] : ranges) {
    if (first < end) refuse_entry(file, path, "has an element twice, or boxes that are no grid");
    if (first > end) refuse_entry(file, path, "lacks an element");
    end = next;
  }
  if (end < size) refuse_entry(file, path, "lacks an element");
  return ranges.size();
}

// Each dim is cut on its own, so boxes form a grid: it is complete if each cell is there once.
void check_grid(const StoredEntry& entry, const std::string& file) {
  if (bytes_of(entry.shape, entry.dtype).value_or(0) == 0) return;
  std::vector<const StoredBox*> boxes;
  for (const StoredBox& box : entry.boxes) {
    if (bytes_of(box.extent, entry.dtype).value_or(0) > 0) boxes.push_back(&box);
  }
  uint64_t cells = 1;
  for (size_t d = 0; d < entry.shape.size() && cells <= boxes.size(); ++d) {
    cells *= count_cuts(boxes, d, entry.shape[d], file, entry.path);
  }
  const auto is_before = [](const StoredBox* a, const StoredBox* b) {
    return std::ranges::lexicographical_compare(a->offset, b->offset);
  };
  std::sort(boxes.begin(), boxes.end(), is_before);
  const auto twin = std::ranges::adjacent_find(
      boxes, [](const auto* a, const auto* b) { return std::ranges::equal(a->offset, b->offset); });
  if (twin != boxes.end()) refuse_entry(file, entry.path, "has an element twice");
  if (cells > boxes.size()) refuse_entry(file, entry.path, "lacks an element");
}

void check_box(const StoredBox& box, const StoredEntry& entry, const std::string& file) {
  if (box.offset.size() != entry.shape.size() || box.extent.size() != entry.shape.size()) {
    refuse_entry(file, entry.path, "has a box of other dims");
  }
  for (size_t d = 0; d < entry.shape.size(); ++d) {
    if (box.offset[d] > entry.shape[d] || box.extent[d] > entry.shape[d] - box.offset[d]) {
      refuse_entry(file, entry.path, "has a box outside of it");
    }
  }
  const uint64_t size = bytes_of(box.extent, entry.dtype).value_or(0);
  if (!box.pieces.empty() && box.pieces.size() != (size + kPiece - 1) / kPiece) {
    refuse_entry(file, entry.path, "has another number of sums");
  }
}

void check_entry(const StoredEntry& entry, const std::string& file) {
  if (!bytes_of(entry.shape, entry.dtype)) refuse_entry(file, entry.path, "is too large");
  for (const StoredBox& box : entry.boxes) check_box(box, entry, file);
  check_grid(entry, file);
}

// Collects the text of a JSON value from its tokens.
class TextOf {
 public:
  std::string take() { return std::move(text_); }
  size_t depth() const { return depth_; }
  void add(std::string_view token) {
    if (!text_.empty() && text_.back() != '{' && text_.back() != '[' && text_.back() != ':') text_ += ',';
    text_ += token;
  }
  void add_key(const std::string& name) {
    add(json(name).dump());
    text_ += ':';
  }
  void begin(std::string_view bracket) {
    add(bracket);
    ++depth_;
  }
  void end(char bracket) {
    text_ += bracket;
    --depth_;
  }

 private:
  std::string text_;
  size_t depth_ = 0;
};

// Builds an index: tracks the place in the text, the latest field, and the values read so far.
class IndexReader final : public Handler {
 public:
  using Handler::Handler;
  Index take() { return std::move(index_); }

  bool null() override { return add_to_tree("null"); }
  bool boolean(bool value) override { return add_to_tree(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return add_to_tree(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return add_to_tree(text); }
  bool number_unsigned(number_unsigned_t number) override {
    if (is_in_tree()) return add_to_tree(std::to_string(number));
    if (at_ == At::kPieces || at_ == At::kHeaders) return add_sum(number);
    if (at_ == At::kDims) return add_size(number);
    if (at_ != At::kIndex || field_ != kVersion) refuse_here();
    return end_field();
  }
  bool string(string_t& text) override {
    if (is_in_tree()) return add_to_tree(json(text).dump());
    if (at_ == At::kIndex && field_ == kId) {
      index_.id = std::move(text);
    } else if (at_ == At::kIndex && field_ == kMesh) {
      index_.mesh = std::move(text);
    } else if (at_ == At::kEntry && field_ == kSpec) {
      entry_.spec = scratch_.copy_text(text);
    } else if (at_ == At::kEntry && field_ == kDtype) {
      set_dtype(text);
    } else if (at_ == At::kBox && field_ == kName) {
      boxes_.back().name = scratch_.copy_text(text);
    } else if (at_ == At::kBox && field_ == kFile) {
      check_file_name(text, file(), entry_.path);
      boxes_.back().file = &*index_.files.try_emplace(std::move(text)).first;
    } else if (at_ != At::kIndex || field_ != kCrc) {
      refuse_here();
    }
    return end_field();
  }
  bool key(string_t& name) override {
    if (at_ == At::kTree) {
      tree_.add_key(name);
    } else if (at_ == At::kEntries) {
      begin_entry(name);
    } else if (at_ == At::kHeaders) {
      sum_ = &index_.files.try_emplace(std::move(name)).first->second;
      if (*sum_) refuse(file(), "a header is there twice");
    } else {
      begin_field(name);
    }
    return true;
  }
  bool start_object(size_t) override {
    if (is_in_tree()) return begin_in_tree("{");
    if (at_ == At::kBegin) return go(At::kIndex);
    if (at_ == At::kIndex && field_ == kEntries) return go(At::kEntries);
    if (at_ == At::kIndex && field_ == kHeaders) return go(At::kHeaders);
    if (at_ == At::kEntries) return go(At::kEntry);
    if (at_ != At::kBoxes) refuse_here();
    if (boxes_.size() == kMostBoxes) refuse_entry(file(), entry_.path, "has more boxes than 4096");
    boxes_.emplace_back();
    box_fields_ = 0;
    return go(At::kBox);
  }
  bool start_array(size_t) override {
    if (is_in_tree()) return begin_in_tree("[");
    if (at_ == At::kEntry && field_ == kBoxes) return go(At::kBoxes);
    if (at_ == At::kBox && field_ == kCrc) return sums_.clear(), go(At::kPieces);
    const bool is_dims =
        (at_ == At::kEntry && field_ == kShape) || (at_ == At::kBox && (field_ == kOffset || field_ == kExtent));
    if (!is_dims) refuse_here();
    dims_.resize(0);
    return go(At::kDims);
  }
  bool end_object() override {
    if (at_ == At::kTree) return end_in_tree('}');
    if (at_ == At::kBox) {
      if (box_fields_ != kOfBox) refuse_entry(file(), entry_.path, "has a box that lacks a field");
      return go(At::kBoxes);
    }
    if (at_ == At::kEntry) {
      if (entry_fields_ != kOfEntry) refuse_entry(file(), entry_.path, "lacks a field");
      entry_.boxes = boxes_;
      check_entry(entry_, file());
      index_.add(entry_);
      return go(At::kEntries);
    }
    if (at_ == At::kEntries) sort_entries();
    if (at_ == At::kIndex && (index_fields_ & kOfIndex) != kOfIndex) refuse(file(), "it lacks a field");
    return go(At::kIndex);
  }
  bool end_array() override {
    if (at_ == At::kTree) return end_in_tree(']');
    const bool is_in_box = at_ != At::kBoxes && field_ != kShape;
    if (at_ == At::kPieces) boxes_.back().pieces = scratch_.copy_list(sums_);
    if (at_ == At::kDims) dims_of_field() = scratch_.copy_list(dims_);
    return go(is_in_box ? At::kBox : At::kEntry), end_field();
  }

 protected:
  bool other() override { refuse_here(); }

 private:
  enum class At { kBegin, kIndex, kTree, kHeaders, kEntries, kEntry, kBoxes, kBox, kDims, kPieces };
  enum Field : unsigned {
    kNone = 0,
    kId = 1,
    kMesh = 2,
    kVersion = 4,
    kValue = 8,
    kEntries = 16,
    kHeaders = 32,
    kCrc = 64,
    kOfIndex = 127,
    kDtype = 128,
    kShape = 256,
    kSpec = 512,
    kBoxes = 1024,
    kOfEntry = kDtype | kShape | kSpec | kBoxes,
    kOffset = 2048,
    kExtent = 4096,
    kFile = 8192,
    kName = 16384,
    kOfBox = kOffset | kExtent | kFile | kName | kCrc
  };

  static Field field_of(const std::string& name) {
    static constexpr std::pair<const char*, Field> kFields[] = {
        {"id", kId},           {"mesh", kMesh},     {"version", kVersion}, {"value", kValue}, {"entries", kEntries},
        {"headers", kHeaders}, {"crc32", kCrc},     {"dtype", kDtype},     {"shape", kShape}, {"spec", kSpec},
        {"boxes", kBoxes},     {"offset", kOffset}, {"extent", kExtent},   {"file", kFile},   {"name", kName}};
    for (const auto& [known, field] : kFields) {
      if (name == known) return field;
    }
    return kNone;
  }

  std::span<const int64_t>& dims_of_field() {
    return field_ == kShape ? entry_.shape : field_ == kOffset ? boxes_.back().offset : boxes_.back().extent;
  }
  bool go(At next) {
    at_ = next;
    return true;
  }
  bool end_field() {
    field_ = kNone;
    return true;
  }
  void begin_field(const std::string& name) {
    unsigned& seen = at_ == At::kIndex ? index_fields_ : at_ == At::kEntry ? entry_fields_ : box_fields_;
    const unsigned known = at_ == At::kIndex ? kOfIndex : at_ == At::kEntry ? kOfEntry : kOfBox;
    field_ = field_of(name);
    if ((field_ & known) == 0) refuse(file(), fmt::format("its field \"{}\" is not known", name.substr(0, 80)));
    if ((seen & field_) != 0) refuse(file(), fmt::format("the key \"{}\" is there twice", name.substr(0, 80)));
    seen |= field_;
  }
  void begin_entry(const std::string& name) {
    scratch_ = Arena();
    boxes_.clear();
    entry_ = StoredEntry();
    entry_.path = scratch_.copy_text(name);
    entry_fields_ = 0;
  }
  void sort_entries() {
    const StoredEntry* const twin = index_.sort();
    if (twin != nullptr) refuse_entry(file(), twin->path, "is there twice");
  }
  void set_dtype(const std::string& name) {
    for (const Dtype known : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt64, Dtype::kBool}) {
      if (name != stored_name(known)) continue;
      entry_.dtype = known;
      return;
    }
    entry_.other = find_other_dtype(name);
    if (entry_.other == nullptr) refuse_entry(file(), entry_.path, "has an unknown dtype");
    entry_.dtype = entry_.other->nearest;
  }
  bool add_size(uint64_t number) {
    if (dims_.size() == kMaxRank || number > INT64_MAX)
      refuse_entry(file(), entry_.path, "has an invalid list of dims");
    dims_.push_back(static_cast<int64_t>(number));
    return true;
  }
  bool add_sum(uint64_t number) {
    if (number > UINT32_MAX) refuse_here();
    if (at_ == At::kPieces) sums_.push_back(static_cast<uint32_t>(number));
    if (at_ == At::kHeaders) *sum_ = static_cast<uint32_t>(number);
    return true;
  }
  bool is_in_tree() const { return at_ == At::kTree || (at_ == At::kIndex && field_ == kValue); }
  bool add_to_tree(const std::string& token) {
    if (!is_in_tree()) refuse_here();
    tree_.add(token);
    return at_ == At::kTree || end_tree();
  }
  bool end_tree() {
    index_.tree = tree_.take();
    return go(At::kIndex), end_field();
  }
  bool begin_in_tree(std::string_view bracket) {
    at_ = At::kTree;
    tree_.begin(bracket);
    check_depth(tree_.depth());
    return true;
  }
  bool end_in_tree(char bracket) {
    tree_.end(bracket);
    return tree_.depth() > 0 || end_tree();
  }
  [[noreturn]] void refuse_here() {
    const bool is_in_entry = at_ != At::kBegin && at_ != At::kIndex && at_ != At::kTree && at_ != At::kHeaders;
    if (is_in_entry) refuse_entry(file(), entry_.path, "has a field of another kind");
    refuse(file(), "it has a field of another kind");
  }

  At at_ = At::kBegin;
  Field field_ = kNone;
  unsigned index_fields_ = 0;
  unsigned entry_fields_ = 0;
  unsigned box_fields_ = 0;
  Index index_;
  TextOf tree_;
  StoredEntry entry_;  // the latest, with its boxes; their texts and lists are in scratch_
  std::vector<StoredBox> boxes_;
  Arena scratch_;
  Dims dims_;                               // the latest list
  std::vector<uint32_t> sums_;              // likewise
  std::optional<uint32_t>* sum_ = nullptr;  // of the latest header
};

class WeightMapReader final : public Handler {
 public:
  using Entry = std::pair<std::string_view, const std::string*>;
  using Handler::Handler;
  WeightMap take() {
    if (!has_map_) refuse(file(), "it has no weight_map");
    std::ranges::sort(map_.entries, {}, &Entry::first);
    const auto twin = std::ranges::adjacent_find(map_.entries, {}, &Entry::first);
    if (twin != map_.entries.end()) refuse_entry(file(), twin->first, "is there twice");
    return std::move(map_);
  }

  bool string(string_t& text) override {
    if (!is_in_map()) return other();
    Entry& entry = map_.entries.back();
    check_file_name(text, file(), entry.first);
    entry.second = &*map_.files.insert(std::move(text)).first;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) is_map_ = name == "weight_map";
    if (depth_ == 1 && is_map_ && has_map_) refuse(file(), "the key \"weight_map\" is there twice");
    if (is_in_map()) map_.entries.emplace_back(map_.names.copy_text(name), nullptr);
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ != 1 || !is_map_) return begin();
    has_map_ = true;
    ++depth_;
    return true;
  }
  bool start_array(size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

 protected:
  bool other() override {
    if (depth_ == 1 && is_map_) refuse(file(), "its weight_map is no map");
    if (is_in_map()) refuse_entry(file(), map_.entries.back().first, "lies in no file");
    return true;
  }

 private:
  bool is_in_map() const { return depth_ == 2 && is_map_; }
  bool begin() {
    other();
    check_depth(++depth_);
    return true;
  }
  bool end() {
    --depth_;
    return true;
  }

  size_t depth_ = 0;
  bool is_map_ = false;
  bool has_map_ = false;
  WeightMap map_;
};

}  // namespace

Index read_index(std::string_view text, const std::string& file) {
  VersionReader version(file);
  walk_json(text, file, version);
  version.check();
  IndexReader reader(file);
  walk_json(text, file, reader);
  return reader.take();
}

WeightMap read_weight_map(std::string_view text, const std::string& file) {
  WeightMapReader reader(file);
  walk_json(text, file, reader);
  return reader.take();
}

}  // namespace distag::store
