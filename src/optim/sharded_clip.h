#pragma once

#include "autograd/context.h"
#include "base/clock.h"
#include "tensor/tensor.h"

namespace distag::optim {

bool has_sharded(const Tensors& parameters);
// As Optimizer::clip, on all members of the mesh at once: they scale by the same bits. Collective; waits. Throws
// INVALID_ARGUMENT where some parameters are sharded and others are not.
double clip_sharded(const Tensors& parameters, Context& context, double max_norm, Nanos timeout);

}  // namespace distag::optim
