#pragma once

#include <cmath>

#include "base/error.h"
#include "ops/attributes.h"

namespace distag::ops {

// Throws INVALID_ARGUMENT for a number that is not finite.
inline double get_finite(const char* op, const Attributes& attributes, const char* name, double fallback) {
  const double value = get_float(attributes, name, fallback);
  if (!std::isfinite(value)) fail(Status::kInvalidArgument, "{}: {} {} is not finite", op, name, value);
  return value;
}

// "eps". Throws INVALID_ARGUMENT also below 0.
inline double get_epsilon(const char* op, const Attributes& attributes) {
  const double epsilon = get_finite(op, attributes, "eps", 1e-5);
  if (epsilon < 0) fail(Status::kInvalidArgument, "{}: eps {} is not 0 or more", op, epsilon);
  return epsilon;
}

}  // namespace distag::ops
