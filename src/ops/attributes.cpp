#include "ops/attributes.h"
#include "ops/require.h"

#include <algorithm>
#include <cstring>

namespace distag::ops {

Setting::Setting(const char* name, const Dims& value) : name_(name), value_(dims_value(value)) {}

Attributes make_attributes(std::initializer_list<Setting> settings) {
  std::vector<const Setting*> sorted;
  sorted.reserve(settings.size());
  for (const Setting& setting : settings) sorted.push_back(&setting);
  std::sort(sorted.begin(), sorted.end(),
            [](const Setting* a, const Setting* b) { return std::strcmp(a->name(), b->name()) < 0; });
  Attributes attributes;
  attributes.reserve(sorted.size());
  for (const Setting* setting : sorted) attributes.emplace_back(setting->name(), setting->value());
  return attributes;
}

void check_fits(const char* op, Dtype dtype, double value) {
  require(dtype != Dtype::kInt64 || is_int64(value),
          "{}: an int64 tensor takes whole numbers within int64 only, not {}; cast it to a float dtype first", op,
          value);
}

}  // namespace distag::ops
