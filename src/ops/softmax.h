#pragma once

#include <cstdint>

#include "ops/math.h"
#include "ops/reduce_kernels.h"
#include "ops/simd.h"

namespace distag::ops {

// out = exp(x - largest), of which it gives the sum.
template <typename T>
DISTAG_INLINE T exp_of_row(T* out, const T* x, T largest, int64_t count) {
  DISTAG_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) out[i] = math::exp(x[i] - largest);
  return reduce_row<Sum<T>, T>(out, count);
}

// sum(a b), in the lanes of reduce_row.
template <typename T>
DISTAG_INLINE T dot_of_rows(const T* a, const T* b, int64_t count) {
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
  }
  for (int64_t l = 0; l < count - i; ++l) lanes[l] += a[i + l] * b[i + l];
  return reduce_lanes<Sum<T>, T>(lanes, kLanes);
}

}  // namespace distag::ops
