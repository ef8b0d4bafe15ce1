#pragma once

#include "ops/math.h"

// gelu(x) = x Phi(x) and its slope, Phi(x) + x phi(x); phi is the density of the normal distribution, and Phi its share
// below x (Hendrycks, Gimpel 2016). Both are computed from the share beyond t = |x|, phi(t) R(t) with Mills' ratio R,
// which keeps all its digits where 1 + erf has lost them.
namespace distag::ops::math {

// R(t) / sqrt(2 pi) = exp(t^2 / 2) erfc(t / sqrt(2)) / 2 as P(t) / Q(t) for t up to kEnd, where phi(t) rounds to 0.
// Fitted by weighted least squares for the least largest relative error: 6e-9 (float) and 1e-18 (double). All terms are
// positive, so that none cancels. Computed in double for float too.
template <typename T>
struct MillsTerms;

template <>
struct MillsTerms<float> {
  static constexpr float kEnd = 15.0f;
  static constexpr double kP[] = {0x1.0000001c6f1abp-1, 0x1.c1ca6e33f0512p-2, 0x1.78b75d5c38308p-3,
                                  0x1.4ed3dbce43ceap-5, 0x1.101a888baccf3p-8};
  static constexpr double kQ[] = {0x1.0000000000000p+0, 0x1.ad27684eda0f4p+0, 0x1.3497d3304c166p+0,
                                  0x1.e2a73b68131c0p-2, 0x1.a3ab529006923p-4, 0x1.550715f03300bp-7};
};

template <>
struct MillsTerms<double> {
  static constexpr double kEnd = 39.0;
  static constexpr double kP[] = {0x1.0000000000000p-1,  0x1.a7e3ec84a5534p-1,  0x1.5bf3127070a31p-1,
                                  0x1.6de80c1505b98p-2,  0x1.0e6ad36240f94p-3,  0x1.242c8f38c9c12p-5,
                                  0x1.d2c66a9a0fee4p-8,  0x1.1089323d5645dp-10, 0x1.bef6ad40f6835p-14,
                                  0x1.d41c1e580e596p-18, 0x1.e16313c0dd911p-23};
  static constexpr double kQ[] = {0x1.0000000000000p+0,  0x1.3a130b11a382ep+1,  0x1.6891e202cc109p+1,
                                  0x1.002cf4c17fabcp+1,  0x1.f5ca3d2be79b2p-1,  0x1.64a882a17a4f2p-2,
                                  0x1.78b780ae4a4dfp-4,  0x1.28ddadc02dfd9p-6,  0x1.57dd68a00995ep-9,
                                  0x1.18ae9c8b7365dp-12, 0x1.25582698165cap-16, 0x1.2daa21d882362p-21};
};

// A polynomial with positive terms, split into even and odd ones, which halves the number of rounding steps.
template <size_t N>
DISTAG_INLINE double polynomial_in_halves(double x, const double (&terms)[N]) {
  const double square = x * x;
  double even = 0;
  double odd = 0;
#pragma GCC unroll 16
  for (size_t k = N; k > 0; --k) {
    double& half = k % 2 == 1 ? even : odd;
    half = half * square + terms[k - 1];
  }
  return even + x * odd;
}

// Values for t = |x|, limited to kEnd.
template <typename T>
struct NormalTail {
  double t;
  T density;     // 2^100 sqrt(2 pi) phi(t)
  double ratio;  // R(t) / sqrt(2 pi)

  DISTAG_INLINE explicit NormalTail(T x) {
    const T limited = magnitude_up_to(x, MillsTerms<T>::kEnd);
    const Square<T> square(limited);
    t = static_cast<double>(limited);
    density = lifted_exp(T(-0.5) * square.high, T(-0.5) * square.low);
    ratio = polynomial_in_halves(t, MillsTerms<T>::kP) / polynomial_in_halves(t, MillsTerms<T>::kQ);
  }
};

// Returns -0 for -infinity.
struct Gelu {
  template <typename T>
  DISTAG_INLINE T operator()(T x) const {
    const NormalTail<T> tail(x);
    const T beyond = (tail.density * static_cast<T>(tail.t * tail.ratio)) * kDropped<T>;
    return x < T(0) ? -beyond : x - beyond;
  }
};

struct GeluSlope {
  template <typename T>
  DISTAG_INLINE T operator()(T x) const {
    const NormalTail<T> tail(x);
    const auto height = static_cast<T>(tail.ratio - 0.39894228040143267794 * tail.t);
    const T below = (tail.density * height) * kDropped<T>;
    return x < T(0) ? below : T(1) - below;
  }
};

}  // namespace distag::ops::math
