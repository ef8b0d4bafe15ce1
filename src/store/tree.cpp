#include "store/tree.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "base/base64.h"
#include "store/json.h"

namespace distag::store {
namespace {

using nlohmann::json;

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

// Builds a value from the text of its tree. A tensor, a number that JSON lacks, bytes and a map are nodes: an object
// whose only key is their kind.
class TreeReader final : public Handler {
 public:
  using Make = std::function<Value(const std::string&)>;
  TreeReader(const std::string& file, const Make& make) : Handler(file), make_(make) {}
  Value take() { return std::move(root_); }

  bool null() override { return add(Value()); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(number_integer_t value) override { return add(Value(int64_t{value})); }
  bool number_float(number_float_t value, const string_t&) override { return add(Value(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > INT64_MAX) refuse(file(), "a number of its tree is too large");
    return add(Value(static_cast<int64_t>(value)));
  }
  bool string(string_t& text) override {
    return is_in_node() ? place(content_of(open_.back().key, text)) : place(Value::text(std::move(text)));
  }
  bool key(string_t& name) override {
    if (is_in_node() && !open_.back().items.empty()) other();
    open_.back().key = std::move(name);
    return true;
  }
  bool start_array(size_t) override { return is_in_node() ? other() : begin(Kind::kList); }
  bool start_object(size_t) override {
    if (!is_in_node()) return begin(Kind::kNode);
    return open_.back().key == "map" ? begin(Kind::kMap) : other();
  }
  bool end_array() override { return place(Value::list(take_last().items)); }
  bool end_object() override {
    Open last = take_last();
    if (last.kind == Kind::kMap) return place(Value::map(std::move(last.entries)));
    return last.items.empty() ? other() : place(std::move(last.items[0]));
  }

 protected:
  bool other() override { refuse(file(), "its tree has a node of no kind"); }

 private:
  enum class Kind { kList, kMap, kNode };
  struct Open {
    Kind kind;
    std::string key = {};     // the latest
    Value::List items = {};   // of a node: its content
    Value::Map entries = {};  // of a map
  };

  bool is_in_node() const { return !open_.empty() && open_.back().kind == Kind::kNode; }
  bool begin(Kind kind) {
    check_depth(open_.size() + 1);
    open_.push_back({kind});
    return true;
  }
  Open take_last() {
    Open last = std::move(open_.back());
    open_.pop_back();
    return last;
  }
  bool add(Value value) { return is_in_node() ? other() : place(std::move(value)); }
  bool place(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().kind == Kind::kMap) {
      open_.back().entries.emplace_back(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }
  Value content_of(const std::string& kind, const std::string& text) {
    if (kind == "tensor") return make_(text);
    if (kind == "float" && (text == "nan" || text == "inf" || text == "-inf")) {
      return Value(text == "nan" ? std::nan("") : text == "inf" ? HUGE_VAL : -HUGE_VAL);
    }
    const auto bytes = kind == "bytes" ? from_base64(text) : std::nullopt;
    if (!bytes) other();
    const auto* first = reinterpret_cast<const std::byte*>(bytes->data());
    return Value::bytes({first, first + bytes->size()});
  }

  const Make& make_;
  Value root_;
  std::vector<Open> open_;
};

void add_entries(const Value& value, const std::string& path, std::map<std::string, std::string>& entries) {
  if (value.kind() == ValueKind::kList) {
    entries[path] = "a list";
    const Value::List& items = value.as_list();
    for (size_t i = 0; i < items.size(); ++i) add_entries(items[i], below(path, std::to_string(i)), entries);
  } else if (value.kind() == ValueKind::kMap) {
    entries[path] = "a map";
    for (const auto& [key, item] : value.as_map()) add_entries(item, below(path, escaped(key)), entries);
  } else {
    entries[path] = tree_of(value, path, [](const std::string&, const Tensor&) {}).dump();
  }
}

}  // namespace

std::string escaped(std::string_view key) {
  std::string text;
  for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
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
  const Value any(Tensor::empty(Dtype::kBool, {0}));
  std::map<std::string, std::string> entries;
  add_entries(parse_tree(tree, "the value", [&any](const std::string&) { return any; }), "", entries);
  return entries;
}

Value parse_tree(std::string_view tree, const std::string& file,
                 const std::function<Value(const std::string& path)>& make) {
  TreeReader reader(file, make);
  try {
    walk_json(tree, file, reader);
    return reader.take();
  } catch (const Error& error) {
    if (error.status() != Status::kInvalidArgument) throw;
    refuse(file, "its tree is no value: " + error.message());  // nested too deep, or a NUL in a text
  }
}

}  // namespace distag::store
