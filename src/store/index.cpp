#include "store/index.h"

#include <fmt/ranges.h>

#include <cmath>
#include <set>
#include <utility>

#include "base/base64.h"
#include "store/index_reader.h"
#include "store/json.h"

namespace distag::store {
namespace {

using nlohmann::json;
constexpr size_t kSumSize = 20;  // of ,"crc32":"01234567"} at the end of an index

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
  fail(Status::kInvalidArgument, "\"{}\" is {}: numbers, texts, bytes, tensors, lists and maps are saved", path,
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

// [3, 2]
template <typename Numbers>
void add_list(std::string& text, const Numbers& numbers) {
  text += fmt::format("[{}]", fmt::join(numbers.begin(), numbers.end(), ","));
}

std::string quoted(const std::string& text) { return json(text).dump(); }

void add_box(std::string& text, const StoredBox& box) {
  text += R"({"crc32":)";
  add_list(text, box.pieces);
  text += R"(,"extent":)";
  add_list(text, box.extent);
  text += fmt::format(R"(,"file":{},"name":{},"offset":)", quoted(box.file), quoted(box.name));
  add_list(text, box.offset);
  text += '}';
}

void add_entry(std::string& text, const StoredEntry& entry) {
  text += R"({"boxes":[)";
  for (const StoredBox& box : entry.boxes) {
    if (&box != entry.boxes.data()) text += ',';
    add_box(text, box);
  }
  text +=
      fmt::format(R"(],"dtype":"{}","shape":)", entry.other == nullptr ? stored_name(entry.dtype) : entry.other->name);
  add_list(text, entry.shape);
  text += fmt::format(R"(,"spec":{}}})", quoted(entry.spec));
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
  const PlainNumbers numbers;
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
    refuse(file, "its tree is no value: " + error.message());  // nested too deep, or a NUL in a text
  }
}

std::string print_index(const Index& index) {
  std::string text = R"({"entries":{)";
  for (const auto& [path, entry] : index.entries) {
    if (text.back() != '{') text += ',';
    text += quoted(path) + ':';
    add_entry(text, entry);
  }
  text += R"(},"headers":{)";
  for (const auto& [name, sum] : index.header_sums) {
    if (text.back() != '{') text += ',';
    text += fmt::format("{}:{}", quoted(name), sum);
  }
  text += fmt::format(R"(}},"id":{},"mesh":{},"value":)", quoted(index.id), quoted(index.mesh));
  text += index.tree;
  text += R"(,"version":1)";
  return text + sum_text(crc32_of(0, text.data(), text.size()));
}

Index parse_index(std::string_view text, const std::string& file) {
  if (text.size() < kSumSize) refuse(file, "it is cut");
  const std::string_view summed = text.substr(0, text.size() - kSumSize);
  if (text.substr(summed.size()) != sum_text(crc32_of(0, summed.data(), summed.size()))) {
    refuse(file, "its text does not have the crc32 at its end");
  }
  return read_index(text, file);
}

Index index_of_files(const std::map<std::string, std::vector<StoredTensor>>& headers) {
  Index index;
  for (const auto& [file, tensors] : headers) {
    for (const StoredTensor& tensor : tensors) {
      StoredEntry& entry = index.entries[escaped(tensor.name)];
      if (!entry.boxes.empty()) refuse(file, fmt::format("entry \"{}\" is in another file, too", tensor.name));
      entry.dtype = tensor.dtype;
      entry.other = tensor.other;
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

}  // namespace distag::store
