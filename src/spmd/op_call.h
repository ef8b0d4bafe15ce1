#pragma once

#include <span>

#include "ops/op.h"
#include "tensor/tensor.h"

namespace distag::spmd {

// Applies an op of which some input is sharded: chooses the specs of its inputs, brings them there, runs the op on the
// members' parts, and records it if `record` and some input requires grad. Throws INVALID_ARGUMENT for tensors of two
// meshes or two lines, and for a plain tensor that requires grad. Collective; may wait.
Tensors apply_sharded(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                      bool record);

}  // namespace distag::spmd
