#pragma once

#include <cmath>

#include "ops/attributes.h"
#include "ops/require.h"

namespace distag::ops {

// Throws INVALID_ARGUMENT for a number that is not finite.
inline double get_finite(const char* op, const Attributes& attributes, const char* name, double fallback) {
  const double value = get_float(attributes, name, fallback);
  require(std::isfinite(value), "{}: {} {} is not finite", op, name, value);
  return value;
}

// Reads "eps". Throws INVALID_ARGUMENT also for a value below 0.
inline double get_epsilon(const char* op, const Attributes& attributes) {
  const double epsilon = get_finite(op, attributes, "eps", 1e-5);
  require(epsilon >= 0, "{}: eps {} is not 0 or more", op, epsilon);
  return epsilon;
}

}  // namespace distag::ops
