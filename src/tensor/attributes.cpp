#include "tensor/attributes.h"

#include <algorithm>

#include "base/error.h"

namespace distag {

const Value* find_attribute(const Attributes& attributes, std::string_view name) {
  for (const auto& [key, value] : attributes) {
    if (key == name) return value.is_null() ? nullptr : &value;
  }
  return nullptr;
}

int64_t get_int(const Attributes& attributes, std::string_view name, int64_t fallback) {
  const Value* value = find_attribute(attributes, name);
  return value != nullptr ? value->as_int64() : fallback;
}

double get_float(const Attributes& attributes, std::string_view name, double fallback) {
  const Value* value = find_attribute(attributes, name);
  return value != nullptr ? value->as_float64() : fallback;
}

bool get_bool(const Attributes& attributes, std::string_view name, bool fallback) {
  const Value* value = find_attribute(attributes, name);
  return value != nullptr ? value->as_bool() : fallback;
}

std::string get_text(const Attributes& attributes, std::string_view name, const char* fallback) {
  const Value* value = find_attribute(attributes, name);
  return value != nullptr ? value->as_text() : fallback;
}

Dims get_dims(const Attributes& attributes, std::string_view name, const Dims& fallback) {
  const Value* value = find_attribute(attributes, name);
  if (value == nullptr) return fallback;
  Dims dims;
  for (const Value& item : value->as_list()) dims.push_back(item.as_int64());
  return dims;
}

Dtype get_dtype(const Attributes& attributes, std::string_view name, Dtype fallback) {
  const Value* value = find_attribute(attributes, name);
  if (value == nullptr) return fallback;
  if (value->kind() == ValueKind::kText) {
    constexpr int32_t kLastDtype = 9;
    for (int32_t number = 1; number <= kLastDtype; ++number) {
      auto dtype = static_cast<Dtype>(number);
      if (value->as_text() != dtype_name(dtype)) continue;
      checked_dtype_size(dtype);
      return dtype;
    }
    fail(Status::kInvalidArgument, "\"{}\" is no dtype: use float32, float64, int64 or bool", value->as_text());
  }
  int64_t number = value->as_int64();
  auto dtype = static_cast<Dtype>(number >= 0 && number <= INT32_MAX ? number : 0);
  checked_dtype_size(dtype);
  return dtype;
}

Value dims_value(const Dims& dims) {
  Value::List items;
  items.reserve(dims.size());
  for (int64_t item : dims) items.emplace_back(item);
  return Value::list(std::move(items));
}

Attributes with_attribute(Attributes attributes, std::string_view name, Value value) {
  auto place = std::lower_bound(attributes.begin(), attributes.end(), name,
                                [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
  if (place == attributes.end() || place->first != name) place = attributes.emplace(place, name, Value());
  place->second = std::move(value);
  return attributes;
}

}  // namespace distag
