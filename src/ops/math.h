#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/simd.h"

// exp, log, tanh and what is made of them, for float and double, written so that loops over them vectorise, and of IEEE
// operations only, so that every machine and compiler gives the same bits. Errors are at most about 2 ulp. Coefficients
// are those of the Taylor series of exp and of log((1 + s) / (1 - s)) = 2 (s + s^3/3 + ...), cut where the rest is
// below the precision.
namespace distag::ops::math {

template <typename T>
struct Bits;

template <>
struct Bits<float> {
  using Unsigned = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr uint32_t kBias = 127;
  static constexpr float kRound = 0x1.8p23f;        // added to a small number, it leaves the nearest whole one below
  static constexpr float kExponentMagic = 0x1p23f;  // its bits or-ed with a small whole number are 2^23 + number
  static constexpr float kLn2High = 0x1.62ep-1f;    // 12 bits: n * kLn2High is exact
  static constexpr float kLn2Low = 0x1.0bfbe8p-15f;
  static constexpr float kLargest = 100.0f;  // exp beyond +- this is infinite, or 0
  static constexpr float kSmallest = -110.0f;
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
  static constexpr int kExpTerms = 13;
  static constexpr int kLogTerms = 11;
};

// exp(x) = 2^n (1 + tail): n as the bits of (n + kRound), which is what an exponent needs.
template <typename T>
struct ExpParts {
  T n;
  typename Bits<T>::Unsigned n_bits;
  T tail;
};

template <typename T>
DISTAG_INLINE ExpParts<T> exp_parts(T x) {
  using B = Bits<T>;
  T shifted = x * static_cast<T>(1.4426950408889634074) + B::kRound;
  T n = shifted - B::kRound;
  T r = (x - n * B::kLn2High) - n * B::kLn2Low;
  // r + r^2/2! + ... + r^k/k!
  T tail = T(0);
  constexpr double kInverseFactorials[] = {
      1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,       1.0 / 5040,
      1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
#pragma GCC unroll 16
  for (int k = B::kExpTerms - 1; k >= 1; --k) tail = tail * r + static_cast<T>(kInverseFactorials[k]);
  return {n, std::bit_cast<typename B::Unsigned>(shifted), tail * r * r + r};
}

// 2^n for a whole n that an exponent can hold, n given as the bits of (n + kRound).
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
  // In two factors, since 2^n itself may be beyond the range: 2^(n -+ 64) first, then 2^+-64.
  bool is_big = parts.n > T(0);
  U near = is_big ? parts.n_bits - U(64) : parts.n_bits + U(64);
  T rest = is_big ? T(0x1p64) : T(0x1p-64);
  T scale = power_of_two<T>(near);
  T result = (scale + scale * parts.tail) * rest;
  return x != x ? x : result;
}

// exp(x) for x <= 0 or NaN, the same bits in fewer steps.
template <typename T>
DISTAG_INLINE T exp_not_positive(T x) {
  using B = Bits<T>;
  using U = typename B::Unsigned;
  ExpParts<T> parts = exp_parts(x < B::kSmallest ? B::kSmallest : x);
  T scale = power_of_two<T>(static_cast<U>(parts.n_bits + U(64)));
  return (scale + scale * parts.tail) * T(0x1p-64);
}

// exp(x) - 1 for 0 <= x <= 80, without cancellation.
template <typename T>
DISTAG_INLINE T expm1_positive(T x) {
  ExpParts<T> parts = exp_parts(x);
  T scale = power_of_two<T>(parts.n_bits);
  return (scale - T(1)) + scale * parts.tail;
}

template <typename T>
DISTAG_INLINE T tanh(T x) {
  T magnitude = std::fabs(x);
  T doubled = magnitude + magnitude;
  doubled = doubled > T(44) ? T(44) : doubled;  // tanh(22) rounds to 1
  T e = expm1_positive(doubled);
  T result = std::copysign(e / (e + T(2)), x);
  return x != x ? x : result;
}

template <typename T>
DISTAG_INLINE T sigmoid(T x) {
  return T(1) / (T(1) + math::exp(-x));
}

template <typename T>
DISTAG_INLINE T log(T x) {
  using B = Bits<T>;
  using U = typename B::Unsigned;
  // Numbers below the normal range are lifted into it.
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
  // log(m) = log((1 + s) / (1 - s)) with s = f / (2 + f), f = m - 1.
  T f = m - T(1);
  T s = f / (T(2) + f);
  T z = s * s;
  T series = T(0);
#pragma GCC unroll 16
  for (int k = B::kLogTerms - 1; k >= 1; --k) series = series * z + T(2) / static_cast<T>(2 * k + 1);
  // 2 s = f - s f, and f is exact.
  T log_m = f - s * (f - z * series);
  T result = e * B::kLn2High + (log_m + e * B::kLn2Low);
  result = x == T(0) ? -std::numeric_limits<T>::infinity() : result;
  result = x < T(0) ? std::numeric_limits<T>::quiet_NaN() : result;
  return x != x || x == std::numeric_limits<T>::infinity() ? x : result;
}

}  // namespace distag::ops::math
