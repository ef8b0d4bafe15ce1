#include "tensor/value.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/utf8.h"

namespace distag {

struct Value::ListData {
  List items;
  size_t depth;
  bool has_external;
  bool has_tensor;
};

struct Value::MapData {
  Map entries;
  size_t depth;
  bool has_external;
  bool has_tensor;
};

namespace {

template <typename T>
const T& expect(const T* pointer, ValueKind wanted, const Value& value) {
  if (pointer == nullptr) {
    fail(Status::kInvalidArgument, "the value is {}, not {}", kind_name(value.kind()), kind_name(wanted));
  }
  return *pointer;
}

void check_text(const std::string& text, const char* what) {
  if (!is_valid_utf8(text)) fail(Status::kInvalidArgument, "a {} is not valid UTF-8", what);
  if (text.find('\0') != std::string::npos) fail(Status::kInvalidArgument, "a {} holds a zero byte", what);
}

// Checks the items of a list or map as they are added, and collects their properties.
class Nesting {
 public:
  void add(const Value& item, const char* container) {
    if (item.kind() == ValueKind::kObject) {
      fail(Status::kInvalidArgument, "a {} cannot hold an object: it stays in its process", container);
    }
    has_external_ = has_external_ || item.has_external();
    has_tensor_ = has_tensor_ || item.has_tensor();
    depth_ = std::max(depth_, item.depth() + 1);
    if (depth_ > kMaxValueDepth) {
      fail(Status::kInvalidArgument, "a {} nests more than {} deep", container, kMaxValueDepth);
    }
  }
  size_t depth() const { return depth_; }
  bool has_external() const { return has_external_; }
  bool has_tensor() const { return has_tensor_; }

 private:
  size_t depth_ = 1;
  bool has_external_ = false;
  bool has_tensor_ = false;
};

}  // namespace

// With its article, as in "an int64".
const char* kind_name(ValueKind kind) {
  static constexpr const char* kNames[] = {
      "of an unknown kind", "null",   "a bool", "an int64", "a float64", "a text", "bytes",
      "a tensor",           "a list", "a map",  "an rref",  "an object"};
  auto number = static_cast<int32_t>(kind);
  return number >= 1 && number <= 11 ? kNames[number] : kNames[0];
}

Value Value::text(std::string text) {
  check_text(text, "text");
  Value value;
  value.data_ = std::make_shared<const std::string>(std::move(text));
  return value;
}

Value Value::bytes(Bytes bytes) {
  Value value;
  value.data_ = std::make_shared<const Bytes>(std::move(bytes));
  return value;
}

Value Value::list(List items) {
  Nesting nesting;
  for (const Value& item : items) nesting.add(item, "list");
  Value value;
  value.data_ = std::make_shared<const ListData>(
      ListData{std::move(items), nesting.depth(), nesting.has_external(), nesting.has_tensor()});
  return value;
}

Value Value::map(Map entries) {
  Nesting nesting;
  for (const auto& [key, item] : entries) {
    check_text(key, "key");
    nesting.add(item, "map");
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  auto twice = std::adjacent_find(entries.begin(), entries.end(),
                                  [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != entries.end()) fail(Status::kInvalidArgument, "a map has the key \"{}\" twice", twice->first);
  Value value;
  value.data_ = std::make_shared<const MapData>(
      MapData{std::move(entries), nesting.depth(), nesting.has_external(), nesting.has_tensor()});
  return value;
}

ValueKind Value::kind() const {
  struct Kinds {
    ValueKind operator()(std::monostate) const { return ValueKind::kNull; }
    ValueKind operator()(bool) const { return ValueKind::kBool; }
    ValueKind operator()(int64_t) const { return ValueKind::kInt64; }
    ValueKind operator()(double) const { return ValueKind::kFloat64; }
    ValueKind operator()(const std::shared_ptr<const std::string>&) const { return ValueKind::kText; }
    ValueKind operator()(const std::shared_ptr<const Bytes>&) const { return ValueKind::kBytes; }
    ValueKind operator()(const Tensor&) const { return ValueKind::kTensor; }
    ValueKind operator()(const std::shared_ptr<const ListData>&) const { return ValueKind::kList; }
    ValueKind operator()(const std::shared_ptr<const MapData>&) const { return ValueKind::kMap; }
    ValueKind operator()(const std::shared_ptr<ExternalValue>& external) const { return external->kind(); }
    ValueKind operator()(const std::shared_ptr<HostObject>&) const { return ValueKind::kObject; }
  };
  return std::visit(Kinds{}, data_);
}

bool Value::as_bool() const { return expect(std::get_if<bool>(&data_), ValueKind::kBool, *this); }
int64_t Value::as_int64() const { return expect(std::get_if<int64_t>(&data_), ValueKind::kInt64, *this); }

double Value::as_float64() const {
  if (const int64_t* whole = std::get_if<int64_t>(&data_)) return static_cast<double>(*whole);
  return expect(std::get_if<double>(&data_), ValueKind::kFloat64, *this);
}

const std::string& Value::as_text() const {
  return *expect(std::get_if<std::shared_ptr<const std::string>>(&data_), ValueKind::kText, *this);
}
const Value::Bytes& Value::as_bytes() const {
  return *expect(std::get_if<std::shared_ptr<const Bytes>>(&data_), ValueKind::kBytes, *this);
}
const Tensor& Value::as_tensor() const { return expect(std::get_if<Tensor>(&data_), ValueKind::kTensor, *this); }
const Value::List& Value::as_list() const {
  return expect(std::get_if<std::shared_ptr<const ListData>>(&data_), ValueKind::kList, *this)->items;
}
const Value::Map& Value::as_map() const {
  return expect(std::get_if<std::shared_ptr<const MapData>>(&data_), ValueKind::kMap, *this)->entries;
}
const std::shared_ptr<ExternalValue>& Value::as_external() const {
  return expect(std::get_if<std::shared_ptr<ExternalValue>>(&data_), ValueKind::kRref, *this);
}
const std::shared_ptr<HostObject>& Value::as_object() const {
  return expect(std::get_if<std::shared_ptr<HostObject>>(&data_), ValueKind::kObject, *this);
}

bool Value::has_external() const {
  if (const auto* list = std::get_if<std::shared_ptr<const ListData>>(&data_)) return (*list)->has_external;
  if (const auto* map = std::get_if<std::shared_ptr<const MapData>>(&data_)) return (*map)->has_external;
  return std::holds_alternative<std::shared_ptr<ExternalValue>>(data_);
}

bool Value::has_tensor() const {
  if (const auto* list = std::get_if<std::shared_ptr<const ListData>>(&data_)) return (*list)->has_tensor;
  if (const auto* map = std::get_if<std::shared_ptr<const MapData>>(&data_)) return (*map)->has_tensor;
  return std::holds_alternative<Tensor>(data_);
}

const Value* Value::find(const std::string& key) const {
  const Map& entries = as_map();
  auto entry =
      std::lower_bound(entries.begin(), entries.end(), key,
                       [](const auto& candidate, const std::string& wanted) { return candidate.first < wanted; });
  return entry != entries.end() && entry->first == key ? &entry->second : nullptr;
}

size_t Value::depth() const {
  if (const auto* list = std::get_if<std::shared_ptr<const ListData>>(&data_)) return (*list)->depth;
  if (const auto* map = std::get_if<std::shared_ptr<const MapData>>(&data_)) return (*map)->depth;
  return 0;
}

void Value::for_each_tensor(const std::function<void(const Tensor&)>& visit) const {
  if (!has_tensor()) return;
  if (const auto* tensor = std::get_if<Tensor>(&data_)) {
    visit(*tensor);
  } else if (const auto* list = std::get_if<std::shared_ptr<const ListData>>(&data_)) {
    for (const Value& item : (*list)->items) item.for_each_tensor(visit);
  } else if (const auto* map = std::get_if<std::shared_ptr<const MapData>>(&data_)) {
    for (const auto& entry : (*map)->entries) entry.second.for_each_tensor(visit);
  }
}

Value Value::map_tensors(const std::function<Tensor(const Tensor&)>& map) const {
  if (!has_tensor()) return *this;
  Value mapped = *this;
  if (const auto* tensor = std::get_if<Tensor>(&data_)) {
    mapped.data_ = map(*tensor);
  } else if (const auto* list = std::get_if<std::shared_ptr<const ListData>>(&data_)) {
    ListData data = **list;
    for (Value& item : data.items) item = item.map_tensors(map);
    mapped.data_ = std::make_shared<const ListData>(std::move(data));
  } else if (const auto* entries = std::get_if<std::shared_ptr<const MapData>>(&data_)) {
    MapData data = **entries;
    for (auto& entry : data.entries) entry.second = entry.second.map_tensors(map);
    mapped.data_ = std::make_shared<const MapData>(std::move(data));
  }
  return mapped;
}

Value Value::map_external(const MapExternal& map) const {
  if (!has_external()) return *this;
  Value mapped;
  if (const auto* external = std::get_if<std::shared_ptr<ExternalValue>>(&data_)) {
    mapped.data_ = map(*external);
  } else if (const auto* list = std::get_if<std::shared_ptr<const ListData>>(&data_)) {
    ListData data = **list;
    for (Value& item : data.items) item = item.map_external(map);
    mapped.data_ = std::make_shared<const ListData>(std::move(data));
  } else {
    MapData data = *std::get<std::shared_ptr<const MapData>>(data_);
    for (auto& entry : data.entries) entry.second = entry.second.map_external(map);
    mapped.data_ = std::make_shared<const MapData>(std::move(data));
  }
  return mapped;
}

namespace {

constexpr size_t kManyItems = 4096;
constexpr size_t kManyBytes = size_t{16} << 20;  // their pages are returned within a millisecond

void spend_items(const Value& value, size_t& budget) {
  if (budget == 0 || value.depth() == 0) return;
  if (value.kind() == ValueKind::kList) {
    budget -= std::min(budget, value.as_list().size());
    for (auto item = value.as_list().begin(); budget != 0 && item != value.as_list().end(); ++item) {
      spend_items(*item, budget);
    }
  } else {
    budget -= std::min(budget, value.as_map().size());
    for (auto entry = value.as_map().begin(); budget != 0 && entry != value.as_map().end(); ++entry) {
      spend_items(entry->second, budget);
    }
  }
}

bool has_bytes(const Value& value, size_t count) {
  switch (value.kind()) {
    case ValueKind::kText:
      return value.as_text().size() >= count;
    case ValueKind::kBytes:
      return value.as_bytes().size() >= count;
    case ValueKind::kTensor:
      return value.as_tensor().byte_size() >= count;
    case ValueKind::kList:
      return std::any_of(value.as_list().begin(), value.as_list().end(),
                         [count](const Value& item) { return has_bytes(item, count); });
    case ValueKind::kMap:
      return std::any_of(value.as_map().begin(), value.as_map().end(),
                         [count](const auto& entry) { return has_bytes(entry.second, count); });
    default:
      return false;
  }
}

}  // namespace

bool takes_long_to_free(const Values& values) {
  return has_items(values, kManyItems) ||
         std::any_of(values.begin(), values.end(), [](const Value& value) { return has_bytes(value, kManyBytes); });
}

bool has_items(const Values& values, size_t count) {
  for (const Value& value : values) spend_items(value, count);
  return count == 0;
}

}  // namespace distag
