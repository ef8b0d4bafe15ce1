#pragma once

#include <cstdint>

#include "ops/math.h"
#include "ops/reduce_kernels.h"
#include "ops/simd.h"

namespace distag::ops {

// out = exp(x - largest), of which it gives the sum.
template <typename T>
DISTAG_INLINE typename Sum<T>::Total exp_of_row(T* out, const T* x, T largest, int64_t count) {
  DISTAG_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) out[i] = math::exp(x[i] - largest);
  return reduce_row<Sum<T>, T>(out, count);
}

// sum(a b)
template <typename T>
DISTAG_INLINE typename Sum<T>::Total dot_of_rows(const T* a, const T* b, int64_t count) {
  using Total = typename Sum<T>::Total;
  return reduce_terms<Sum<T>>(
      count, [a, b](int64_t i) DISTAG_INLINE_LAMBDA { return static_cast<Total>(a[i]) * static_cast<Total>(b[i]); });
}

}  // namespace distag::ops
