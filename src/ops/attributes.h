#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "ops/op.h"

namespace distag::ops {

// A setting to make Attributes of: {"dim", 1}, {"dims", some_dims}, {"dtype", Dtype::kInt64}.
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

// The value of that name; nullptr when it is not there or null, which mean the default.
const Value* find_attribute(const Attributes& attributes, std::string_view name);

// Typed reads. Kinds have been checked against the signature; a list holds at most kMaxRank items.
int64_t get_int(const Attributes& attributes, std::string_view name, int64_t fallback);
double get_float(const Attributes& attributes, std::string_view name, double fallback);
bool get_bool(const Attributes& attributes, std::string_view name, bool fallback);
std::string get_text(const Attributes& attributes, std::string_view name, const char* fallback);
Dims get_dims(const Attributes& attributes, std::string_view name, const Dims& fallback = {});
Dtype get_dtype(const Attributes& attributes, std::string_view name, Dtype fallback);

}  // namespace distag::ops
