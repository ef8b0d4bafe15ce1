#pragma once

#include <string>
#include <vector>

#include "ops/attributes.h"

namespace distag::testing {

// A curve and its slope, made of long doubles so that no digits of a double are lost: of numbers that a double has.
struct ExactCurve {
  using Function = long double (*)(long double x);

  std::string op;
  ops::Attributes attributes;
  Function value;
  Function slope;
  Function slope_terms;  // of a slope that goes through 0: the sum of its terms without their signs; else nullptr
  double value_ulp;      // the largest errors
  double slope_ulp;
};

// Every curve of one tensor.
const std::vector<ExactCurve>& exact_curves();

// log(1 + exp(-d)) and exp(-d) / (1 + exp(-d)) for d >= 0, and the product of the latter with 1 minus it.
long double log_sum_with(long double d);
long double share_with(long double d);
long double slope_with(long double d);

// Distance of a result from the exact value in units in the last place that the latter has in T, or `size` where that
// is larger; 0 where both are no number, or the same infinity.
template <typename T>
double error_in_ulp(T actual, long double exact, long double size = 0);

}  // namespace distag::testing
