#pragma once

#include "ops/convolution.h"

// Convolutions without columns, for kernels with few elements: a product of matrices with so short an inner size, and
// the columns that it reads, cost several times as much.

namespace distag::ops {

// Whether the two functions below take it, and are the faster way.
template <typename T>
bool suits_direct_convolution(const Convolution& conv);

// y = x convolved with weight, plus bias, which may be none. All are contiguous, and none is empty.
template <typename T>
void convolve_directly(Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias, const Convolution& conv);

// The gradient of the weight for the gradient g of y.
template <typename T>
Tensor differentiate_weight_directly(const Tensor& g, const Tensor& x, const Convolution& conv);

}  // namespace distag::ops
