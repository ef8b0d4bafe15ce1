#include "store/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "base/base64.h"
#include "store/json.h"

namespace distag::store {
namespace {

using nlohmann::json;
constexpr size_t kMostBoxes = 4096;  // members of a mesh
constexpr size_t kSumSize = 20;      // of ,"crc32":"01234567"} at the end of an index

std::string escaped(const std::string& key) {
  std::string text;
  for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

std::string below(const std::string& path, const std::string& key) { return path.empty() ? key : path + "/" + key; }

using Visit = std::function<void(const std::string&, const Tensor&)>;

json tree_of(const Value& value, const std::string& path, const Visit& visit) {
  switch (value.kind()) {
    case ValueKind::kNull:
      return nullptr;
    case ValueKind::kBool:
      return value.as_bool();
    case ValueKind::kInt64:
      return value.as_int64();
    case ValueKind::kFloat64: {
      const double number = value.as_float64();
      if (std::isfinite(number)) return number;
      return {{"float", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
    }
    case ValueKind::kText:
      return value.as_text();
    case ValueKind::kBytes: {
      const Value::Bytes& bytes = value.as_bytes();
      return {{"bytes", to_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()})}};
    }
    case ValueKind::kTensor:
      visit(path, value.as_tensor());
      return {{"tensor", path}};
    case ValueKind::kList: {
      json items = json::array();
      for (const Value& item : value.as_list()) {
        items.push_back(tree_of(item, below(path, std::to_string(items.size())), visit));
      }
      return items;
    }
    case ValueKind::kMap: {
      json entries = json::object();
      for (const auto& [key, item] : value.as_map()) entries[key] = tree_of(item, below(path, escaped(key)), visit);
      return {{"map", entries}};
    }
    case ValueKind::kRref:
    case ValueKind::kObject:
      break;
  }
  fail(Status::kInvalidArgument, "\"{}\" is a {}: numbers, texts, bytes, tensors, lists and maps are saved", path,
       kind_name(value.kind()));
}

Value value_of(const json& node, const std::string& file, const std::function<Tensor(const std::string&)>& make) {
  if (node.is_null()) return Value();
  if (node.is_boolean()) return Value(node.get<bool>());
  if (node.is_number_float()) return Value(node.get<double>());
  if (node.is_number_unsigned() && node.get<uint64_t>() > INT64_MAX) refuse(file, "a number of its tree is too large");
  if (node.is_number_integer()) return Value(node.get<int64_t>());
  if (node.is_string()) return Value::text(node.get<std::string>());
  if (node.is_array()) {
    Value::List items;
    for (const json& item : node) items.push_back(value_of(item, file, make));
    return Value::list(std::move(items));
  }
  if (!node.is_object() || node.size() != 1) refuse(file, "its tree has a node of no kind");
  const std::string& kind = node.begin().key();
  const json& content = node.begin().value();
  if (kind == "map" && content.is_object()) {
    Value::Map entries;
    for (const auto& [key, item] : content.items()) entries.emplace_back(key, value_of(item, file, make));
    return Value::map(std::move(entries));
  }
  if (!content.is_string()) refuse(file, "its tree has a node of no kind");
  const std::string text = content.get<std::string>();
  if (kind == "tensor") return Value(make(text));
  if (kind == "float" && (text == "nan" || text == "inf" || text == "-inf")) {
    return Value(text == "nan" ? std::nan("") : text == "inf" ? HUGE_VAL : -HUGE_VAL);
  }
  const auto bytes = kind == "bytes" ? from_base64(text) : std::nullopt;
  if (!bytes) refuse(file, "its tree has a node of no kind");
  const auto* first = reinterpret_cast<const std::byte*>(bytes->data());
  return Value::bytes({first, first + bytes->size()});
}

void add_entries(const json& node, const std::string& path, std::map<std::string, std::string>& entries) {
  if (node.is_array()) {
    entries[path] = "a list";
    for (size_t i = 0; i < node.size(); ++i) add_entries(node[i], below(path, std::to_string(i)), entries);
  } else if (node.is_object() && node.contains("map")) {
    entries[path] = "a map";
    for (const auto& [key, item] : node["map"].items()) add_entries(item, below(path, escaped(key)), entries);
  } else {
    entries[path] = node.dump();
  }
}

std::vector<int64_t> list_of(const Dims& dims) { return {dims.begin(), dims.end()}; }

[[noreturn]] void refuse_entry(const std::string& file, const std::string& path, const char* reason) {
  refuse(file, fmt::format("entry \"{}\" {}", path, reason));
}

Dims dims_of(const json& given, const std::string& file, const std::string& path) {
  if (!given.is_array() || given.size() > kMaxRank) refuse_entry(file, path, "has an invalid list of dims");
  Dims dims;
  for (const json& size : given) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX)
      refuse_entry(file, path, "has no size of a dim");
    dims.push_back(size.get<int64_t>());
  }
  return dims;
}

std::string text_at(const json& given, const char* key, const std::string& file, const std::string& path) {
  if (!given.is_object() || !given.contains(key) || !given[key].is_string()) refuse_entry(file, path, "lacks a text");
  return given[key].get<std::string>();
}

const json& at(const json& given, const char* key, const std::string& file, const std::string& path) {
  if (!given.is_object() || !given.contains(key)) refuse_entry(file, path, "lacks a field");
  return given[key];
}

void check_file_name(const std::string& name, const std::string& file, const std::string& path) {
  const bool is_name = !name.empty() && name[0] != '.' && name.find('/') == std::string::npos && name.size() <= 255 &&
                       name.find('\0') == std::string::npos;
  if (!is_name) refuse_entry(file, path, "lies in a file whose name is invalid or has a folder in it");
}

StoredBox box_of(const json& given, const StoredEntry& entry, const std::string& file, const std::string& path) {
  StoredBox box;
  box.offset = dims_of(at(given, "offset", file, path), file, path);
  box.extent = dims_of(at(given, "extent", file, path), file, path);
  box.file = text_at(given, "file", file, path);
  box.name = text_at(given, "name", file, path);
  check_file_name(box.file, file, path);
  if (box.offset.size() != entry.shape.size() || box.extent.size() != entry.shape.size()) {
    refuse_entry(file, path, "has a box of other dims");
  }
  for (size_t d = 0; d < entry.shape.size(); ++d) {
    if (box.offset[d] > entry.shape[d] || box.extent[d] > entry.shape[d] - box.offset[d]) {
      refuse_entry(file, path, "has a box outside of it");
    }
  }
  const uint64_t size = bytes_of(box.extent, entry.dtype).value_or(0);
  const json& pieces = at(given, "crc32", file, path);
  if (!pieces.is_array() || (!pieces.empty() && pieces.size() != (size + kPiece - 1) / kPiece)) {
    refuse_entry(file, path, "has another number of sums");
  }
  for (const json& sum : pieces) {
    if (!sum.is_number_unsigned() || sum.get<uint64_t>() > UINT32_MAX) refuse_entry(file, path, "has no crc");
    box.pieces.push_back(sum.get<uint32_t>());
  }
  return box;
}

// The ranges of a dim by which its boxes are cut: one behind the other.
size_t count_cuts(const std::vector<const StoredBox*>& boxes, size_t dim, int64_t size, const std::string& file,
                  const std::string& path) {
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

// Each dim is cut by itself, so boxes are a grid: it is whole if each of its cells is there once.
void check_boxes(const StoredEntry& entry, const std::string& file, const std::string& path) {
  if (bytes_of(entry.shape, entry.dtype).value_or(0) == 0) return;
  std::vector<const StoredBox*> boxes;
  for (const StoredBox& box : entry.boxes) {
    if (bytes_of(box.extent, entry.dtype).value_or(0) > 0) boxes.push_back(&box);
  }
  uint64_t cells = 1;
  for (size_t d = 0; d < entry.shape.size() && cells <= boxes.size(); ++d) {
    cells *= count_cuts(boxes, d, entry.shape[d], file, path);
  }
  const auto is_before = [](const StoredBox* a, const StoredBox* b) {
    return std::lexicographical_compare(a->offset.begin(), a->offset.end(), b->offset.begin(), b->offset.end());
  };
  std::sort(boxes.begin(), boxes.end(), is_before);
  const auto twin = std::adjacent_find(boxes.begin(), boxes.end(),
                                       [](const auto* a, const auto* b) { return a->offset == b->offset; });
  if (twin != boxes.end()) refuse_entry(file, path, "has an element twice");
  if (cells > boxes.size()) refuse_entry(file, path, "lacks an element");
}

StoredEntry entry_of(const json& given, const std::string& file, const std::string& path) {
  StoredEntry entry;
  const std::string dtype = text_at(given, "dtype", file, path);
  entry.dtype = Dtype(0);
  for (const Dtype known : {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt64, Dtype::kBool}) {
    if (dtype == stored_name(known)) entry.dtype = known;
  }
  if (entry.dtype == Dtype(0)) refuse_entry(file, path, "has an unknown dtype");
  entry.shape = dims_of(at(given, "shape", file, path), file, path);
  if (!bytes_of(entry.shape, entry.dtype)) refuse_entry(file, path, "is too large");
  entry.spec = text_at(given, "spec", file, path);
  const json& boxes = at(given, "boxes", file, path);
  if (!boxes.is_array() || boxes.size() > kMostBoxes) refuse_entry(file, path, "has no list of boxes");
  for (const json& box : boxes) entry.boxes.push_back(box_of(box, entry, file, path));
  check_boxes(entry, file, path);
  return entry;
}

std::string sum_text(uint32_t sum) { return fmt::format(",\"crc32\":\"{:08x}\"}}", sum); }

}  // namespace

std::string name_of_part(const std::string& path, const Dims& shape, const Dims& offset, const Dims& extent) {
  if (extent == shape) return path;
  std::string ranges;
  for (size_t d = 0; d < shape.size(); ++d) {
    ranges += fmt::format("{}{}:{}", ranges.empty() ? "" : ", ", offset[d], offset[d] + extent[d]);
  }
  return fmt::format("{}[{}]", path, ranges);
}

std::string print_tree(const Value& value, const Visit& visit) {
  std::set<std::string> paths;
  const auto visit_once = [&](const std::string& path, const Tensor& tensor) {
    if (!paths.insert(path).second) {
      fail(Status::kInvalidArgument, "two tensors have the path \"{}\": take other keys than \"\"", path);
    }
    visit(path, tensor);
  };
  return tree_of(value, "", visit_once).dump();
}

std::map<std::string, std::string> entries_of_tree(const std::string& tree) {
  std::map<std::string, std::string> entries;
  add_entries(json::parse(tree), "", entries);
  return entries;
}

Value parse_tree(const std::string& tree, const std::string& file,
                 const std::function<Tensor(const std::string&)>& make) {
  const json parsed = parse_json(tree, file);
  try {
    return value_of(parsed, file, make);
  } catch (const Error& error) {
    if (error.status() != Status::kInvalidArgument) throw;
    refuse(file, "its tree is no value: " + error.message());  // nested too deep, a NUL in a text
  }
}

std::string print_index(const Index& index) {
  json entries = json::object();
  for (const auto& [path, entry] : index.entries) {
    json boxes = json::array();
    for (const StoredBox& box : entry.boxes) {
      boxes.push_back({{"offset", list_of(box.offset)},
                       {"extent", list_of(box.extent)},
                       {"file", box.file},
                       {"name", box.name},
                       {"crc32", box.pieces}});
    }
    entries[path] = {
        {"dtype", stored_name(entry.dtype)}, {"shape", list_of(entry.shape)}, {"spec", entry.spec}, {"boxes", boxes}};
  }
  const json all = {{"version", 1},       {"id", index.id},
                    {"mesh", index.mesh}, {"value", json::parse(index.tree)},
                    {"entries", entries}, {"headers", index.header_sums}};
  std::string text = all.dump();
  text.pop_back();  // the bracket, which comes behind the crc
  return text + sum_text(crc32_of(0, text.data(), text.size()));
}

Index parse_index(std::string_view text, const std::string& file) {
  if (text.size() < kSumSize) refuse(file, "it is cut");
  const std::string_view summed = text.substr(0, text.size() - kSumSize);
  if (text.substr(summed.size()) != sum_text(crc32_of(0, summed.data(), summed.size()))) {
    refuse(file, "its text does not have the crc32 at its end");
  }
  const json parsed = parse_json(text, file);
  if (!parsed.is_object() || !parsed.contains("version") || parsed["version"] != 1) {
    fail(Status::kUnsupported, "\"{}\" has another version: 1 is read", file);
  }
  Index index;
  index.id = text_at(parsed, "id", file, "");
  index.mesh = text_at(parsed, "mesh", file, "");
  index.tree = at(parsed, "value", file, "").dump();
  const json& entries = at(parsed, "entries", file, "");
  const json& headers = at(parsed, "headers", file, "");
  if (!entries.is_object() || !headers.is_object()) refuse(file, "it has no map of entries and headers");
  for (const auto& [path, entry] : entries.items()) index.entries[path] = entry_of(entry, file, path);
  for (const auto& [name, sum] : headers.items()) {
    if (!sum.is_number_unsigned() || sum.get<uint64_t>() > UINT32_MAX) refuse(file, "a header has no crc");
    index.header_sums[name] = sum.get<uint32_t>();
  }
  return index;
}

Index index_of_files(const std::map<std::string, std::vector<StoredTensor>>& headers) {
  Index index;
  for (const auto& [file, tensors] : headers) {
    for (const StoredTensor& tensor : tensors) {
      StoredEntry& entry = index.entries[escaped(tensor.name)];
      if (!entry.boxes.empty()) refuse(file, fmt::format("entry \"{}\" is in another file, too", tensor.name));
      entry.dtype = tensor.dtype;
      entry.shape = tensor.shape;
      Dims zero;
      zero.resize(tensor.shape.size());
      entry.boxes.push_back({zero, tensor.shape, file, tensor.name, {}});
    }
  }
  for (const auto& [path, entry] : index.entries) {
    index.tree += fmt::format(R"({}{}:{{"tensor":{}}})", index.tree.empty() ? R"({"map":{)" : ",",
                              json(entry.boxes[0].name).dump(), json(path).dump());
  }
  index.tree += index.tree.empty() ? R"({"map":{}})" : "}}";
  return index;
}

std::vector<std::string> files_in_weight_map(std::string_view text, const std::string& file) {
  const json parsed = parse_json(text, file);
  const json& map = at(parsed, "weight_map", file, "");
  if (!map.is_object()) refuse(file, "its weight_map is no map");
  std::set<std::string> names;
  for (const auto& [entry, name] : map.items()) {
    if (!name.is_string()) refuse_entry(file, entry, "lies in no file");
    check_file_name(name.get<std::string>(), file, entry);
    names.insert(name.get<std::string>());
  }
  return {names.begin(), names.end()};
}

}  // namespace distag::store
