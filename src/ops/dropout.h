#pragma once

#include "tensor/attributes.h"
#include "tensor/tensor.h"

namespace distag::ops {

// The op dropout for the part of a tensor of shape `whole` that lies from `offset` on. Also its gradient, of that of
// the output.
Tensor dropped(const Tensor& x, const Attributes& attributes, const Dims& whole, const Dims& offset);

}  // namespace distag::ops
