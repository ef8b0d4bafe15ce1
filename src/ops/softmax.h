#pragma once

#include "ops/math.h"
#include "tensor/tensor.h"

namespace distag::ops {

// log(ones + rest), where `ones` is the number of terms that are 1 and `rest` is the sum of all other terms, over all
// processes.
template <typename T>
DISTAG_INLINE T log_of_terms(T ones, T rest) {
  return ones == T(1) && rest <= T(1) ? math::log1p_up_to_1(rest) : math::log(ones + rest);
}
Tensor log_of_terms(const Tensor& ones, const Tensor& rest);

// The gradient of log_softmax with the result y, from the gradient of the result and sums of that gradient along the
// dim.
Tensor log_softmax_gradient(const Tensor& gradient, const Tensor& y, const Tensor& sums);

}  // namespace distag::ops
