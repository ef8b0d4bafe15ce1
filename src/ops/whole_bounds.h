#pragma once

#include <cmath>
#include <utility>

#include "ops/attributes.h"

namespace distag::ops {

// The attributes "min" and "max" as bounds of int64; without them, or where no int64 is beyond them, those of the type.
// Throws INVALID_ARGUMENT for a bound that is not whole, or that all int64 are beyond.
inline std::pair<int64_t, int64_t> get_whole_bounds(const char* op, const Attributes& attributes) {
  const double low = get_float(attributes, "min", -HUGE_VAL);
  const double high = get_float(attributes, "max", HUGE_VAL);
  const auto whole = [op](double bound) {
    check_fits(op, Dtype::kInt64, bound);
    return static_cast<int64_t>(bound);
  };
  return {low <= -0x1p63 ? INT64_MIN : whole(low), high >= 0x1p63 ? INT64_MAX : whole(high)};
}

}  // namespace distag::ops
