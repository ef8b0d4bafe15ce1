#pragma once

#include "autograd/context.h"
#include "base/clock.h"
#include "tensor/tensor.h"

namespace distag::optim {

bool has_sharded(const Tensors& parameters);
// As Optimizer::clip, on all members of the mesh at once; all members scale by bitwise the same factor. Collective;
// waits. Throws INVALID_ARGUMENT if some parameters are sharded and others are not.
double clip_sharded(const Tensors& parameters, Context& context, double max_norm, Nanos timeout);

}  // namespace distag::optim
