#pragma once

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <vector>

// Numbers of 113 bits with the slope of what made them, so that an op's exact value is written down once and its exact
// gradient follows.
namespace distag::testing {

#if LDBL_MANT_DIG == 113
using Wide = long double;
inline Wide exp_of(Wide x) { return expl(x); }
inline Wide log_of(Wide x) { return logl(x); }
inline Wide log1p_of(Wide x) { return log1pl(x); }
inline Wide expm1_of(Wide x) { return expm1l(x); }
inline Wide root_of(Wide x) { return sqrtl(x); }
inline Wide power_of(Wide x, Wide y) { return powl(x, y); }
#else
#ifdef __clang__
__extension__ typedef __float128 Wide;  // glibc tells gcc alone of its functions
extern "C" {
Wide expf128(Wide) noexcept;
Wide logf128(Wide) noexcept;
Wide log1pf128(Wide) noexcept;
Wide expm1f128(Wide) noexcept;
Wide sqrtf128(Wide) noexcept;
Wide powf128(Wide, Wide) noexcept;
}
#else
using Wide = _Float128;
#endif
inline Wide exp_of(Wide x) { return expf128(x); }
inline Wide log_of(Wide x) { return logf128(x); }
inline Wide log1p_of(Wide x) { return log1pf128(x); }
inline Wide expm1_of(Wide x) { return expm1f128(x); }
inline Wide root_of(Wide x) { return sqrtf128(x); }
inline Wide power_of(Wide x, Wide y) { return powf128(x, y); }
#endif

inline Wide without_sign(Wide x) { return x < 0 ? -x : x; }

// A value and its slope in one of the numbers that it is made of.
struct Exact {
  Wide value = 0;
  Wide slope = 0;
  Exact() = default;
  Exact(Wide of, Wide with = 0) : value(of), slope(with) {}
};

inline Exact operator-(Exact a) { return {-a.value, -a.slope}; }
inline Exact operator+(Exact a, Exact b) { return {a.value + b.value, a.slope + b.slope}; }
inline Exact operator-(Exact a, Exact b) { return {a.value - b.value, a.slope - b.slope}; }
inline Exact operator*(Exact a, Exact b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
inline Exact operator/(Exact a, Exact b) {
  const Wide ratio = a.value / b.value;
  return {ratio, (a.slope - ratio * b.slope) / b.value};
}

// Beyond +-5000 the exponential is beyond every double, and its square is still a number.
inline Wide within_reach(Wide x) { return x > 5000 ? Wide(5000) : x < -5000 ? Wide(-5000) : x; }

inline Exact exp(Exact x) {
  const Wide y = exp_of(within_reach(x.value));
  return {y, y * x.slope};
}
inline Exact expm1(Exact x) {
  const Wide at = within_reach(x.value);
  return {expm1_of(at), exp_of(at) * x.slope};
}
inline Exact log(Exact x) { return {log_of(x.value), x.slope / x.value}; }
inline Exact log1p(Exact x) { return {log1p_of(x.value), x.slope / (1 + x.value)}; }
inline Exact root(Exact x) {
  const Wide y = root_of(x.value);
  return {y, x.slope / (2 * y)};
}
// If the base is below 0, the exponent is a whole number and has no slope.
inline Exact power(Exact a, Exact b) {
  const Wide y = power_of(a.value, b.value);
  const Wide in_base = b.value == 0 || a.slope == 0 ? Wide(0) : b.value * power_of(a.value, b.value - 1) * a.slope;
  return {y, b.slope == 0 ? in_base : in_base + y * log_of(a.value) * b.slope};
}

}  // namespace distag::testing
