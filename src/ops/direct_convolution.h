#pragma once

#include "ops/convolution.h"

// Convolutions without columns, for kernels with few elements. A product of matrices with such a short inner size, plus
// the columns that it reads, would cost several times as much.

namespace distag::ops {

// Whether the two functions below can handle the convolution and are faster.
template <typename T>
bool suits_direct_convolution(const Convolution& conv);

// y = x convolved with weight, plus bias, which may be undefined. All tensors are contiguous and not empty.
template <typename T>
void convolve_directly(Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias, const Convolution& conv);

// The gradient of the weight, given the gradient g of y.
template <typename T>
Tensor differentiate_weight_directly(const Tensor& g, const Tensor& x, const Convolution& conv);

}  // namespace distag::ops
