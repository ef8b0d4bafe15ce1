#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/simd.h"

// exp, log, tanh, erf, sin, cos and functions derived from them, for float and double. Loops over them vectorise.
// They use only IEEE operations, so every machine and compiler gives the same bits. Errors are a few ulp over the
// whole range (tests/precision/curves_test.cpp). Coefficients are those of the Taylor series of exp, sin, cos and
// of log((1 + s) / (1 - s)) = 2 (s + s^3/3 + ...), cut where the rest is below the precision; those of erf are
// fitted.
namespace distag::ops::math {

template <typename T>
struct Bits;

template <>
struct Bits<float> {
  using Unsigned = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr uint32_t kBias = 127;
  static constexpr float kRound = 0x1.8p23f;        // added to a small number, its low bits hold the nearest integer
  static constexpr float kExponentMagic = 0x1p23f;  // or-ed with the bits of a small integer n, it is 2^23 + n
  static constexpr float kLn2High = 0x1.62ep-1f;    // 12 bits: n * kLn2High is exact
  static constexpr float kLn2Low = 0x1.0bfbe8p-15f;
  static constexpr float kLargest = 100.0f;  // exp beyond +- this is infinite, or 0
  static constexpr float kSmallest = -110.0f;
  static constexpr float kTail = 115.0f;           // x exp(-x) beyond this is 0
  static constexpr uint32_t kUpperHalf = ~0xfffu;  // mask: the square of a number so masked is exact
  static constexpr int kExpTerms = 7;
  static constexpr int kLogTerms = 5;
};

template <>
struct Bits<double> {
  using Unsigned = uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr uint64_t kBias = 1023;
  static constexpr double kRound = 0x1.8p52;
  static constexpr double kExponentMagic = 0x1p52;
  static constexpr double kLn2High = 0x1.62e42fee00000p-1;  // 33 bits
  static constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kLargest = 720.0;
  static constexpr double kSmallest = -750.0;
  static constexpr double kTail = 765.0;
  static constexpr uint64_t kUpperHalf = ~uint64_t{0x7ffffff};
  static constexpr int kExpTerms = 13;
  static constexpr int kLogTerms = 11;
};

// exp(x) = 2^n (1 + tail), with n as the bits of (n + kRound), which the exponent needs.
template <typename T>
struct ExpParts {
  T n;
  typename Bits<T>::Unsigned n_bits;
  T tail;
};

// r + r^2/2! + ... + r^k/k!
template <typename T>
DISTAG_INLINE T exp_tail(T r) {
  T tail = T(0);
  constexpr double kInverseFactorials[] = {
      1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,       1.0 / 5040,
      1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
#pragma GCC unroll 16
  for (int k = Bits<T>::kExpTerms - 1; k >= 1; --k) tail = tail * r + static_cast<T>(kInverseFactorials[k]);
  return tail * r * r + r;
}

template <typename T>
DISTAG_INLINE ExpParts<T> exp_parts(T x) {
  using B = Bits<T>;
  T shifted = x * static_cast<T>(1.4426950408889634074) + B::kRound;
  T n = shifted - B::kRound;
  return {n, std::bit_cast<typename B::Unsigned>(shifted), exp_tail((x - n * B::kLn2High) - n * B::kLn2Low)};
}

// 2^n for an integer n within the exponent's range, given as the bits of (n + kRound).
template <typename T>
DISTAG_INLINE T power_of_two(typename Bits<T>::Unsigned n_bits) {
  using B = Bits<T>;
  return std::bit_cast<T>(static_cast<typename B::Unsigned>((n_bits + B::kBias) << B::kMantissa));
}

template <typename T>
DISTAG_INLINE T exp(T x) {
  using B = Bits<T>;
  using U = typename B::Unsigned;
  T y = x > B::kLargest ? B::kLargest : x;
  y = y < B::kSmallest ? B::kSmallest : y;
  ExpParts<T> parts = exp_parts(y);
  // Multiplies by two factors, since 2^n itself may be out of range: first 2^(n -+ 64), then 2^+-64.
  bool is_big = parts.n > T(0);
  U near = is_big ? parts.n_bits - U(64) : parts.n_bits + U(64);
  T rest = is_big ? T(0x1p64) : T(0x1p-64);
  T scale = power_of_two<T>(near);
  T result = (scale + scale * parts.tail) * rest;
  return x != x ? x : result;
}

// exp(x) for x <= 0 or NaN, with the same bits in fewer steps.
template <typename T>
DISTAG_INLINE T exp_not_positive(T x) {
  using B = Bits<T>;
  using U = typename B::Unsigned;
  ExpParts<T> parts = exp_parts(x < B::kSmallest ? B::kSmallest : x);
  T scale = power_of_two<T>(static_cast<U>(parts.n_bits + U(64)));
  return (scale + scale * parts.tail) * T(0x1p-64);
}

// exp(x) for x <= 0 or NaN; exp(x) - 1 if that is near 0.
template <typename T>
struct ShareNotAbove1 {
  T value;
  bool is_near_1;
  DISTAG_INLINE explicit ShareNotAbove1(T x) : is_near_1(x > T(-0.25)) {
    using B = Bits<T>;
    using U = typename B::Unsigned;
    const ExpParts<T> parts = exp_parts(x < B::kSmallest ? B::kSmallest : x);  // n is 0 near 0
    const T scale = power_of_two<T>(static_cast<U>(parts.n_bits + U(64)));
    value = is_near_1 ? parts.tail : (scale + scale * parts.tail) * T(0x1p-64);
  }
};

// Factor that undoes the scaling of lifted_exp().
template <typename T>
inline constexpr T kDropped = T(0x1p-100);

// 2^100 exp(x + low) for -765 <= x <= 0; `low` has digits that x cannot hold. A product with the result is rounded only
// once, by kDropped, while exp(x) itself would have lost digits.
template <typename T>
DISTAG_INLINE T lifted_exp(T x, T low) {
  using B = Bits<T>;
  using U = typename B::Unsigned;
  T shifted = (x + low) * static_cast<T>(1.4426950408889634074) + B::kRound;
  T n = shifted - B::kRound;
  T tail = exp_tail(((x - n * B::kLn2High) - n * B::kLn2Low) + low);
  T scale = power_of_two<T>(static_cast<U>(std::bit_cast<U>(shifted) + U(100)));
  return scale + scale * tail;
}

// exp(x) factor, where the exponential alone may have lost digits, or be too large. Returns 0 times the factor if
// exp(x) is below 2^-165 (float) or 2^-1103 (double).
template <typename T>
DISTAG_INLINE T exp_times(T x, T factor) {
  using B = Bits<T>;
  using U = typename B::Unsigned;
  T y = x > B::kLargest ? B::kLargest : x;
  y = y < -B::kTail ? -B::kTail : y;
  ExpParts<T> parts = exp_parts(y);
  bool is_big = parts.n > T(64);
  bool is_small = parts.n < T(-100);  // then 2^n is above 1 in neither case
  U near = is_big ? parts.n_bits - U(64) : is_small ? parts.n_bits + U(100) : parts.n_bits;
  T rest = is_big ? T(0x1p64) : is_small ? kDropped<T> : T(1);
  T scale = power_of_two<T>(near);
  T result = ((scale + scale * parts.tail) * factor) * rest;
  result = x > B::kLargest ? std::numeric_limits<T>::infinity() * factor : result;
  result = x < -B::kTail ? T(0) * factor : result;
  return x != x ? x : result;
}

// The magnitude of a number, at most `limit`; NaN stays.
template <typename T>
DISTAG_INLINE T magnitude_up_to(T x, T limit) {
  T magnitude = std::fabs(x);
  return magnitude > limit ? limit : magnitude;
}

// exp(x) - 1 for -80 <= x <= 80, without cancellation.
template <typename T>
DISTAG_INLINE T expm1_within(T x) {
  ExpParts<T> parts = exp_parts(x);
  T scale = power_of_two<T>(parts.n_bits);
  return (scale - T(1)) + scale * parts.tail;
}

template <typename T>
DISTAG_INLINE T tanh(T x) {
  T magnitude = std::fabs(x);
  T doubled = magnitude + magnitude;
  doubled = doubled > T(44) ? T(44) : doubled;  // tanh(22) rounds to 1
  T e = expm1_within(doubled);
  T result = std::copysign(e / (e + T(2)), x);
  return x != x ? x : result;
}

// 1 - tanh(x)^2 = 4 e / (1 + e)^2 with e = exp(-2 |x|)
template <typename T>
DISTAG_INLINE T tanh_slope(T x) {
  T half = magnitude_up_to(x, Bits<T>::kTail / T(2));
  T lifted = lifted_exp(T(-2) * half, T(0));
  T sum = T(1) + lifted * kDropped<T>;
  return (T(4) * lifted / (sum * sum)) * kDropped<T>;
}

// Computed from exp(-|x|), so that no tail is lost.
template <typename T>
DISTAG_INLINE T sigmoid(T x) {
  T e = math::exp_not_positive(-std::fabs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

// sigmoid(x) (1 - sigmoid(x))
template <typename T>
DISTAG_INLINE T sigmoid_slope(T x) {
  T e = math::exp_not_positive(-std::fabs(x));
  T sum = T(1) + e;
  return e / (sum * sum);
}

// x sigmoid(x); -0 for -infinity.
template <typename T>
DISTAG_INLINE T silu(T x) {
  T near = magnitude_up_to(x, Bits<T>::kTail);
  T lifted = lifted_exp(-near, T(0));
  T ratio = (x < T(0) ? -near * lifted : x) / (T(1) + lifted * kDropped<T>);
  return x < T(0) ? ratio * kDropped<T> : ratio;
}

// s (1 + x (1 - s)) with s = sigmoid(x)
template <typename T>
DISTAG_INLINE T silu_slope(T x) {
  T near = magnitude_up_to(x, Bits<T>::kTail);
  T lifted = lifted_exp(-near, T(0));
  T e = lifted * kDropped<T>;
  T sum = T(1) + e;
  T ratio = (x < T(0) ? lifted * (sum - near) : sum + near * e) / (sum * sum);
  return x < T(0) ? ratio * kDropped<T> : ratio;
}

// log(1 + f) for f from sqrt(1/2) - 1 to 1/2, as log((1 + s) / (1 - s)) with s = f / (2 + f).
template <typename T>
DISTAG_INLINE T log1p_near_0(T f) {
  T s = f / (T(2) + f);
  T z = s * s;
  T series = T(0);
#pragma GCC unroll 16
  for (int k = Bits<T>::kLogTerms - 1; k >= 1; --k) series = series * z + T(2) / static_cast<T>(2 * k + 1);
  // 2 s = f - s f, and f is exact.
  return f - s * (f - z * series);
}

// log(1 + x) for 0 <= x <= 1.
template <typename T>
DISTAG_INLINE T log1p_up_to_1(T x) {
  const bool is_upper = x > T(0.5);  // then log 2 + log(1 + (x - 1) / 2), where the difference is exact
  T part = log1p_near_0(is_upper ? (x - T(1)) * T(0.5) : x);
  return is_upper ? Bits<T>::kLn2High + (part + Bits<T>::kLn2Low) : part;
}

template <typename T>
DISTAG_INLINE T log(T x) {
  using B = Bits<T>;
  using U = typename B::Unsigned;
  // Subnormal numbers are scaled into the normal range.
  bool is_tiny = x < std::numeric_limits<T>::min();
  T lifted = is_tiny ? x * T(0x1p54) : x;
  T lift = is_tiny ? T(54) : T(0);
  // x = m 2^e with m from sqrt(1/2) to sqrt(2).
  U bits = std::bit_cast<U>(lifted);
  U offset = std::bit_cast<U>(T(1)) - std::bit_cast<U>(static_cast<T>(0.70710678118654752440));
  U exponent = (bits + offset) >> B::kMantissa;
  T m = std::bit_cast<T>(static_cast<U>(bits - ((exponent - B::kBias) << B::kMantissa)));
  T biased = std::bit_cast<T>(static_cast<U>(std::bit_cast<U>(B::kExponentMagic) | exponent)) - B::kExponentMagic;
  T e = biased - static_cast<T>(B::kBias) - lift;
  T log_m = log1p_near_0(m - T(1));
  T result = e * B::kLn2High + (log_m + e * B::kLn2Low);
  result = x == T(0) ? -std::numeric_limits<T>::infinity() : result;
  result = x < T(0) ? std::numeric_limits<T>::quiet_NaN() : result;
  return x != x || x == std::numeric_limits<T>::infinity() ? x : result;
}

// Fitted by weighted least squares for the least largest error. Up to 1, erf(x) = x + x P(x^2) with an error of 1.2e-9
// (float) and 1.2e-19 (double). From 1 to kErfIsOne, where erf rounds to 1, erfc(x) = exp(-Q(x)), and the error of erf
// is 2.1e-11 and 1.2e-18.
template <typename T>
struct ErfTerms;

template <>
struct ErfTerms<float> {
  static constexpr float kErfIsOne = 3.95f;
  static constexpr float kP[] = {1.283791659e-01f, -3.761262712e-01f, 1.128360002e-01f, -2.685443809e-02f,
                                 5.189523003e-03f, -8.020732973e-04f, 7.888762135e-05f};
  static constexpr float kQ[] = {-1.879944708e-04f, 1.129578182e+00f, 6.332204262e-01f,  1.084179449e-01f,
                                 -2.520781969e-02f, 4.204386028e-03f, -4.412982810e-04f, 2.168342743e-05f};
};

template <>
struct ErfTerms<double> {
  static constexpr double kErfIsOne = 6.0;
  static constexpr double kP[] = {0x1.06eba8214db69p-3,   -0x1.812746b0379e6p-2,  0x1.ce2f21a042b34p-4,
                                  -0x1.b82ce31284f2ep-6,  0x1.565bcd0dbd79ap-8,   -0x1.c02db3db453c1p-11,
                                  0x1.f9a321e4417c1p-14,  -0x1.f4d1e42c1ff66p-17, 0x1.b9df2ff1eddf1p-20,
                                  -0x1.5f1f3d8f34779p-23, 0x1.f7b979d68e942p-27,  -0x1.38abb7b71c83dp-30,
                                  0x1.062641313f92cp-34};
  static constexpr double kQ[] = {
      0x1.8c88682aad273p-23,  0x1.20dd555a28b57p+0,   0x1.45f432f4e8c99p-1,   0x1.a4d9a07fa6c60p-4,
      -0x1.388e425e49bf3p-6,  -0x1.280b69d3d1565p-12, 0x1.d044634b866f8p-10,  -0x1.5114e1dfe19a5p-11,
      0x1.8212c35e443ffp-15,  0x1.24664795dc9dbp-14,  -0x1.776bff4b528b1p-15, 0x1.136996f843c7cp-16,
      -0x1.209569ce3656bp-18, 0x1.c594a41ac0312p-21,  -0x1.0bf46858c5ae0p-23, 0x1.d06491c582ef6p-27,
      -0x1.1769478472b3bp-30, 0x1.a1b61072c7b19p-35,  -0x1.2445414f1bce9p-40};
};

template <typename T, size_t N>
DISTAG_INLINE T polynomial(T x, const T (&terms)[N]) {
  T sum = terms[N - 1];
#pragma GCC unroll 24
  for (size_t k = N - 1; k > 0; --k) sum = sum * x + terms[k - 1];
  return sum;
}

template <typename T>
DISTAG_INLINE T erf(T x) {
  using E = ErfTerms<T>;
  T magnitude = std::fabs(x);
  T near = magnitude > T(1) ? T(1) : magnitude;
  T far = magnitude > E::kErfIsOne ? E::kErfIsOne : magnitude;
  T up_to_1 = x + x * polynomial(near * near, E::kP);
  T from_1 = std::copysign(T(1) - math::exp_not_positive(-polynomial(far, E::kQ)), x);
  return magnitude > T(1) ? from_1 : up_to_1;
}

// x^2 as a sum of two numbers, exact for the first half of the digits; |x| < 2^60.
template <typename T>
struct Square {
  T high;
  T low;
  DISTAG_INLINE explicit Square(T x) {
    using U = typename Bits<T>::Unsigned;
    T upper = std::bit_cast<T>(static_cast<U>(std::bit_cast<U>(x) & Bits<T>::kUpperHalf));
    high = upper * upper;
    low = (x + upper) * (x - upper);
  }
};

// 2 exp(-x^2) / sqrt(pi), which is 0 beyond 27.5 (float: 10.4).
template <typename T>
DISTAG_INLINE T erf_slope(T x) {
  const Square<T> square(magnitude_up_to(x, std::is_same_v<T, float> ? T(10.5) : T(27.5)));
  return lifted_exp(-square.high, -square.low) * static_cast<T>(1.12837916709551257390) * kDropped<T>;
}

// The largest angle that is reduced by a multiple n of pi / 2. pi / 2 has three parts, and n times the first two is
// exact.
inline constexpr double kLargestReduced = 0x1p20;

template <typename T>
DISTAG_INLINE bool is_beyond_reduction(T x) {
  return !(std::fabs(static_cast<double>(x)) <= kLargestReduced);  // also true for NaN
}

// sin(x + quarters pi / 2). Computed in double for float too: the result is correct up to its rounding.
template <int kQuarters, typename T>
DISTAG_INLINE T sine(T angle) {
  using B = Bits<double>;
  const auto x = static_cast<double>(angle);
  const double shifted = x * 0.63661977236758134308 + B::kRound;
  const double n = shifted - B::kRound;
  // x - n pi / 2 = r + rest.
  const double first = x - n * 0x1.921fb544p+0;
  const double second = first - n * 0x1.0b4611a6p-34;
  const double r = second - n * 0x1.3198a2e037073p-69;
  const double rest = ((first - second) - n * 0x1.0b4611a6p-34) + ((second - r) - n * 0x1.3198a2e037073p-69);
  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted) + kQuarters;
  constexpr int kTerms = std::is_same_v<T, float> ? 6 : 9;
  constexpr double kSineTerms[] = {1.0,
                                   -1.0 / 6,
                                   1.0 / 120,
                                   -1.0 / 5040,
                                   1.0 / 362880,
                                   -1.0 / 39916800,
                                   1.0 / 6227020800,
                                   -1.0 / 1307674368000,
                                   1.0 / 355687428096000};
  constexpr double kCosineTerms[] = {1.0,
                                     -1.0 / 2,
                                     1.0 / 24,
                                     -1.0 / 720,
                                     1.0 / 40320,
                                     -1.0 / 3628800,
                                     1.0 / 479001600,
                                     -1.0 / 87178291200,
                                     1.0 / 20922789888000};
  const double z = r * r;
  double sine = 0;
  double cosine = 0;
#pragma GCC unroll 16
  for (int k = kTerms - 1; k >= 1; --k) {
    sine = sine * z + kSineTerms[k];
    cosine = cosine * z + kCosineTerms[k];
  }
  sine = r + (r * (z * sine) + rest);
  cosine = 1.0 + (z * cosine - r * rest);
  const double result = (quadrant & 1) != 0 ? cosine : sine;
  return static_cast<T>((quadrant & 2) != 0 ? -result : result);
}

// ---- the curves as function objects ----

#define DISTAG_CURVE(name, x, ...)          \
  struct name {                             \
    template <typename T>                   \
    DISTAG_INLINE T operator()(T x) const { \
      return __VA_ARGS__;                   \
    }                                       \
  }

DISTAG_CURVE(Exp, x, math::exp(x));
DISTAG_CURVE(ExpNotPositive, x, math::exp_not_positive(x));
DISTAG_CURVE(Log, x, math::log(x));
DISTAG_CURVE(Tanh, x, math::tanh(x));
DISTAG_CURVE(Sigmoid, x, math::sigmoid(x));
DISTAG_CURVE(TanhSlope, x, math::tanh_slope(x));
DISTAG_CURVE(SigmoidSlope, x, math::sigmoid_slope(x));
DISTAG_CURVE(Silu, x, math::silu(x));
DISTAG_CURVE(SiluSlope, x, math::silu_slope(x));
DISTAG_CURVE(Erf, x, math::erf(x));
DISTAG_CURVE(ErfSlope, x, math::erf_slope(x));
DISTAG_CURVE(Sin, x, (math::sine<0>(x)));
DISTAG_CURVE(Cos, x, (math::sine<1>(x)));
DISTAG_CURVE(MinusSin, x, (math::sine<2>(x)));
// exp(x) - 1 for x <= 0.
DISTAG_CURVE(Expm1NotPositive, x, x == T(0) ? x : math::expm1_within(x < T(-80) ? T(-80) : x > T(0) ? T(0) : x));
// log(1 + exp(x)), without overflow.
DISTAG_CURVE(Softplus, x, math::log1p_up_to_1(math::exp_not_positive(-std::fabs(x))) + (x > T(0) ? x : T(0)));
#undef DISTAG_CURVE

// A curve of an angle of any size. Far from 0 it uses the library's functions for long double, whose bits do not depend
// on the instruction set.
template <typename Curve>
struct Any {
  template <typename T>
  T operator()(T x) const {
    if (!is_beyond_reduction(x)) return Curve()(x);
    const auto angle = static_cast<long double>(x);
    if (std::is_same_v<Curve, Cos>) return static_cast<T>(std::cos(angle));
    const auto sine = static_cast<T>(std::sin(angle));
    return std::is_same_v<Curve, Sin> ? sine : -sine;
  }
};

}  // namespace distag::ops::math
