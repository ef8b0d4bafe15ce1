#pragma once

#include <cmath>
#include <initializer_list>
#include <utility>

#include "ops/op.h"
#include "tensor/attributes.h"

namespace distag::ops {

// A setting for make_attributes(): {"dim", 1}, {"dims", some_dims}, {"dtype", Dtype::kInt64}.
class Setting {
 public:
  Setting(const char* name, bool value) : name_(name), value_(value) {}
  Setting(const char* name, int64_t value) : name_(name), value_(value) {}
  Setting(const char* name, int value) : Setting(name, int64_t{value}) {}
  Setting(const char* name, double value) : name_(name), value_(value) {}
  Setting(const char* name, const char* value) : name_(name), value_(Value::text(value)) {}
  Setting(const char* name, Dtype value) : name_(name), value_(static_cast<int64_t>(value)) {}
  Setting(const char* name, const Dims& value);
  Setting(const char* name, Value value) : name_(name), value_(std::move(value)) {}

  const char* name() const { return name_; }
  const Value& value() const { return value_; }

 private:
  const char* name_;
  Value value_;
};

Attributes make_attributes(std::initializer_list<Setting> settings);

// The readers of attributes, under the namespace of this layer.
using distag::find_attribute;
using distag::get_bool;
using distag::get_dims;
using distag::get_dtype;
using distag::get_float;
using distag::get_int;
using distag::get_text;

// Whether the number is an exact int64.
inline bool is_int64(double value) { return value >= -0x1p63 && value < 0x1p63 && value == std::floor(value); }
// Throws INVALID_ARGUMENT for a number that should become an element of an int64 tensor and is not an exact int64.
void check_fits(const char* op, Dtype dtype, double value);

}  // namespace distag::ops
