#pragma once

#include <cstdint>
#include <type_traits>

#include "ops/math.h"
#include "ops/reduce_kernels.h"
#include "ops/simd.h"
#include "tensor/tensor.h"

namespace distag::ops {

// The largest element, whatever stands beside a NaN: then the exponentials have a NaN, and so their sum.
template <typename T>
DISTAG_INLINE T largest_of_row(const T* x, int64_t count) {
  constexpr int64_t kWidth = 2 * kLanes;
  T lanes[kWidth];
  for (int64_t l = 0; l < kWidth; ++l) lanes[l] = Maximum<T>::kStart;
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    for (int64_t l = 0; l < kWidth; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  }
  for (int64_t l = 0; l < count - i; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
  DISTAG_UNROLL
  for (int64_t width = kWidth / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] = lanes[l + width] > lanes[l] ? lanes[l + width] : lanes[l];
  }
  return lanes[0];
}

// out = exp(x - largest), of which it gives the sum; no x is larger.
template <typename T>
DISTAG_INLINE typename Sum<T>::Total exp_below_largest(T* out, const T* x, T largest, int64_t count) {
  DISTAG_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) out[i] = math::exp_not_positive(x[i] - largest);
  return reduce_row<Sum<T>, T>(out, count);
}

// log(sum(exp(x - largest))); out holds terms of the sum. Where the largest element outweighs all others their sum
// alone has the digits.
template <typename T>
DISTAG_INLINE typename Sum<T>::Total log_sum_below_largest(T* out, const T* x, T largest, int64_t count) {
  using Total = typename Sum<T>::Total;
  constexpr Total kHasDigits = std::is_same_v<T, Total> ? Total(1.5) : Total(1 + 0x1p-20);
  const Total sum = exp_below_largest(out, x, largest, count);
  if (!(sum < kHasDigits)) return math::log(sum);
  int64_t i = 0;
  while (x[i] != largest) ++i;
  out[i] = T(0);
  return math::log1p_up_to_1(reduce_row<Sum<T>, T>(out, count));
}

// out = exp(x), of which it gives the sum.
template <typename T>
DISTAG_INLINE typename Sum<T>::Total exp_of_row(T* out, const T* x, int64_t count) {
  DISTAG_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) out[i] = math::exp(x[i]);
  return reduce_row<Sum<T>, T>(out, count);
}

// log(ones + rest) for a whole number of ones: of terms of a sum that others have too, those that are 1, and all
// others.
template <typename T>
DISTAG_INLINE T log_of_terms(T ones, T rest) {
  return ones == T(1) && rest <= T(1) ? math::log1p_up_to_1(rest) : math::log(ones + rest);
}
Tensor log_of_terms(const Tensor& ones, const Tensor& rest);

// The gradient of log_softmax with the result y, from that of the result and sums of the latter along the dim.
Tensor log_softmax_gradient(const Tensor& gradient, const Tensor& y, const Tensor& sums);

// sum(a b)
template <typename T>
DISTAG_INLINE typename Sum<T>::Total dot_of_rows(const T* a, const T* b, int64_t count) {
  using Total = typename Sum<T>::Total;
  return reduce_terms<Sum<T>>(
      count, [a, b](int64_t i) DISTAG_INLINE_LAMBDA { return static_cast<Total>(a[i]) * static_cast<Total>(b[i]); });
}

}  // namespace distag::ops
