#pragma once

#include "tensor/attributes.h"
#include "tensor/tensor.h"

namespace distag::ops {

// The op dropout for the part of a tensor of shape `whole` that begins at `offset`. Applied to the gradient of the
// output, it gives the gradient of the input.
Tensor dropped(const Tensor& x, const Attributes& attributes, const Dims& whole, const Dims& offset);

}  // namespace distag::ops
