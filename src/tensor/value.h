#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/task.h"
#include "tensor/tensor.h"

namespace distag {

enum class ValueKind : int32_t {
  kNull = 1,
  kBool = 2,
  kInt64 = 3,
  kFloat64 = 4,
  kText = 5,
  kBytes = 6,
  kTensor = 7,
  kList = 8,
  kMap = 9,
  kRref = 10,
  kObject = 11,
};

const char* kind_name(ValueKind kind);

inline constexpr size_t kMaxValueDepth = 16;

// A kind of value that an upper layer defines (a remote reference), with its own wire form.
class ExternalValue {
 public:
  virtual ~ExternalValue() = default;
  virtual ValueKind kind() const = 0;
};

// An object of the host, which stays in its process. `type` is compared before the pointer is handed out. The task
// `destroy` runs when the last holder goes; its maker ensures that it runs where host code may run.
struct HostObject {
  std::string type;
  void* pointer = nullptr;
  Task destroy;
  HostObject(std::string t, void* p, Task d) : type(std::move(t)), pointer(p), destroy(std::move(d)) {}
  ~HostObject() {
    if (destroy) destroy();
  }
  HostObject(const HostObject&) = delete;
  HostObject& operator=(const HostObject&) = delete;
};

// The content of calls. Immutable once made; copies share.
class Value {
 public:
  using List = std::vector<Value>;
  using Map = std::vector<std::pair<std::string, Value>>;  // sorted by key, keys unique
  using Bytes = std::vector<std::byte>;

  Value() = default;  // null
  explicit Value(bool value) : data_(value) {}
  Value(const char*) = delete;  // would be a bool: use text()
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(Tensor tensor) : data_(std::move(tensor)) {}
  explicit Value(std::shared_ptr<ExternalValue> external) : data_(std::move(external)) {}
  explicit Value(std::shared_ptr<HostObject> object) : data_(std::move(object)) {}
  // Throws INVALID_ARGUMENT: invalid UTF-8, a zero byte in a text, a key twice, nested too deep, a list or map that
  // holds an object.
  static Value text(std::string text);
  static Value bytes(Bytes bytes);
  static Value list(List items);
  static Value map(Map entries);

  ValueKind kind() const;
  bool is_null() const { return kind() == ValueKind::kNull; }

  // Throws INVALID_ARGUMENT naming the wanted kind and the actual one.
  bool as_bool() const;
  int64_t as_int64() const;
  double as_float64() const;  // takes an int64 too
  const std::string& as_text() const;
  const Bytes& as_bytes() const;
  const Tensor& as_tensor() const;
  const List& as_list() const;
  const Map& as_map() const;
  const std::shared_ptr<ExternalValue>& as_external() const;
  const std::shared_ptr<HostObject>& as_object() const;

  bool has_external() const;                        // is an external value, or holds one
  bool has_tensor() const;                          // likewise
  const Value* find(const std::string& key) const;  // in a map; nullptr when it is not there
  size_t depth() const;                             // 0 for a scalar, 1 for a list of scalars

  // Calls `visit` for each tensor in the value, in the order of the wire.
  void for_each_tensor(const std::function<void(const Tensor&)>& visit) const;
  // The same value with each tensor replaced by the result of `map`, in the same order.
  Value map_tensors(const std::function<Tensor(const Tensor&)>& map) const;
  // The same for external values.
  using MapExternal = std::function<std::shared_ptr<ExternalValue>(const std::shared_ptr<ExternalValue>&)>;
  Value map_external(const MapExternal& map) const;

 private:
  struct ListData;
  struct MapData;
  std::variant<std::monostate, bool, int64_t, double, std::shared_ptr<const std::string>, std::shared_ptr<const Bytes>,
               Tensor, std::shared_ptr<const ListData>, std::shared_ptr<const MapData>, std::shared_ptr<ExternalValue>,
               std::shared_ptr<HostObject>>
      data_;
};

using Values = std::vector<Value>;

// Whether lists and maps among the values hold at least `count` items in all. Stops counting there.
bool has_items(const Values& values, size_t count);
// Whether a loop must leave the end of these values to another thread: for many items, or many bytes in one of them.
bool takes_long_to_free(const Values& values);

}  // namespace distag
