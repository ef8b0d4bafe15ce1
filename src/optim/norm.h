#pragma once

#include "tensor/tensor.h"

namespace distag::optim {

// Sum of the squares of all elements, in double; 0 for an undefined tensor.
double square_norm(const Tensor& tensor);

// The factor for gradients of this joint norm, at most 1. Throws INVALID_STATE when the norm is not finite,
// INVALID_ARGUMENT when max_norm is not a number of at least 0.
double clip_factor(double norm, double max_norm);

}  // namespace distag::optim
