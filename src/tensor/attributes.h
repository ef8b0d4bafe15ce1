#pragma once

#include <string>
#include <string_view>

#include "tensor/value.h"

namespace distag {

// Named settings of one application of an op, sorted by name.
using Attributes = Value::Map;

// The value of that name; nullptr when it is missing or null, which both mean the default.
const Value* find_attribute(const Attributes& attributes, std::string_view name);

// Typed reads. Kinds have been checked against the signature; a list holds at most kMaxRank items.
int64_t get_int(const Attributes& attributes, std::string_view name, int64_t fallback);
double get_float(const Attributes& attributes, std::string_view name, double fallback);
bool get_bool(const Attributes& attributes, std::string_view name, bool fallback);
std::string get_text(const Attributes& attributes, std::string_view name, const char* fallback);
Dims get_dims(const Attributes& attributes, std::string_view name, const Dims& fallback = {});
Dtype get_dtype(const Attributes& attributes, std::string_view name, Dtype fallback);

// A list of int64.
Value dims_value(const Dims& dims);
// The same settings with that value instead of the former one.
Attributes with_attribute(Attributes attributes, std::string_view name, Value value);

}  // namespace distag
