#include "precision/exact.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace distag::testing {
namespace {

using ops::make_attributes;

constexpr auto kInverseRootPi = std::numbers::inv_sqrtpi_v<long double>;
constexpr auto kRootOfTwo = std::numbers::sqrt2_v<long double>;

// exp(-x^2 factor), x^2 in three parts that are exact.
long double exp_of_minus_square(long double x, long double factor) {
  if (fabsl(x) > 200) return 0;
  const auto upper = static_cast<long double>(static_cast<float>(x));
  const long double lower = x - upper;
  return expl(-upper * upper * factor) * expl(-2 * upper * lower * factor) * expl(-lower * lower * factor);
}

long double normal_density(long double t) { return exp_of_minus_square(t, 0.5L) * kInverseRootPi / kRootOfTwo; }

// The share of the normal distribution beyond t >= 0; far out Laplace's continued fraction.
long double normal_share_beyond(long double t) {
  if (t < 3) return 0.5L * erfcl(t / kRootOfTwo);
  long double rest = t;
  for (int k = 300; k >= 1; --k) rest = t + static_cast<long double>(k) / rest;
  return normal_density(t) / rest;
}

long double normal_share(long double x) { return x < 0 ? normal_share_beyond(-x) : 1 - normal_share_beyond(x); }

long double square_root_slope(long double x) { return 0.5L / sqrtl(x); }
long double inverse(long double x) { return 1 / x; }
long double inverse_slope(long double x) { return -1 / (x * x); }
long double inverse_root(long double x) { return 1 / sqrtl(x); }
long double inverse_root_slope(long double x) { return -0.5L / fabsl(x) / sqrtl(x); }
long double minus_sine(long double x) { return -sinl(x); }

long double tanh_slope(long double x) { return 4 * slope_with(2 * fabsl(x)); }
long double sigmoid(long double x) { return x < 0 ? share_with(-x) : 1 - share_with(x); }
long double sigmoid_slope(long double x) { return slope_with(fabsl(x)); }
long double softplus(long double x) { return log_sum_with(fabsl(x)) + (x > 0 ? x : 0); }
long double erf_slope(long double x) { return 2 * kInverseRootPi * exp_of_minus_square(x, 1); }

long double elu(long double x) { return x > 0 ? x : expm1l(x); }
long double elu_slope(long double x) { return x > 0 ? 1 : expl(x); }

// A magnitude of x beyond 1e5 counts as 1e5: an infinite one times 0 would be no number.
long double near(long double x) { return fabsl(x) > 1e5L ? copysignl(1e5L, x) : x; }

long double silu(long double x) { return x > 0 ? x * sigmoid(x) : near(x) * sigmoid(x); }
long double silu_slope(long double x) { return sigmoid(x) + near(x) * sigmoid_slope(x); }
long double silu_slope_terms(long double x) { return sigmoid(x) + fabsl(near(x)) * sigmoid_slope(x); }

long double gelu(long double x) { return x > 0 ? x * normal_share(x) : near(x) * normal_share(x); }
long double gelu_slope(long double x) { return normal_share(x) + near(x) * normal_density(x); }
long double gelu_slope_terms(long double x) { return normal_share(x) + fabsl(near(x)) * normal_density(x); }

}  // namespace

long double log_sum_with(long double d) { return log1pl(expl(-d)); }
long double share_with(long double d) { return expl(-d) / (1 + expl(-d)); }
long double slope_with(long double d) { return share_with(d) / (1 + expl(-d)); }

const std::vector<ExactCurve>& exact_curves() {
  static const std::vector<ExactCurve> curves = {
      {"exp", {}, expl, expl, nullptr, 2, 2},
      {"log", {}, logl, inverse, nullptr, 2, 1},
      {"sqrt", {}, sqrtl, square_root_slope, nullptr, 1, 2},
      {"rsqrt", {}, inverse_root, inverse_root_slope, nullptr, 2, 5},
      {"reciprocal", {}, inverse, inverse_slope, nullptr, 1, 2},
      {"sin", {}, sinl, cosl, nullptr, 2, 2},
      {"cos", {}, cosl, minus_sine, nullptr, 2, 2},
      {"erf", {}, erfl, erf_slope, nullptr, 2, 3},
      {"tanh", {}, tanhl, tanh_slope, nullptr, 3, 4},
      {"sigmoid", {}, sigmoid, sigmoid_slope, nullptr, 3, 4},
      {"silu", {}, silu, silu_slope, silu_slope_terms, 3, 4},
      {"softplus", {}, softplus, sigmoid, nullptr, 2, 3},
      {"gelu", {}, gelu, gelu_slope, gelu_slope_terms, 6, 5},
      {"elu", {}, elu, elu_slope, nullptr, 2, 2},
  };
  return curves;
}

template <typename T>
double error_in_ulp(T actual, long double exact, long double size) {
  if (std::isnan(actual) || std::isnan(exact)) {
    return std::isnan(actual) && std::isnan(exact) ? 0 : std::numeric_limits<double>::infinity();
  }
  const T rounded = static_cast<T>(exact);
  if (std::isinf(actual) || std::isinf(rounded)) {
    return actual == rounded ? 0 : std::numeric_limits<double>::infinity();
  }
  const T unit_of = std::fabs(static_cast<T>(std::fmax(fabsl(exact), size)));
  const T ulp = unit_of - std::nextafter(unit_of, T(0)) > 0 ? unit_of - std::nextafter(unit_of, T(0))
                                                            : std::numeric_limits<T>::denorm_min();
  return static_cast<double>(fabsl(static_cast<long double>(actual) - exact) / static_cast<long double>(ulp));
}

template double error_in_ulp(float, long double, long double);
template double error_in_ulp(double, long double, long double);

}  // namespace distag::testing
