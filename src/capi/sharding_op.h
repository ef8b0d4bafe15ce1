#pragma once

#include <string_view>

#include "tensor/attributes.h"
#include "tensor/tensor.h"

namespace distag::capi {

// distag_redistribute as an op by name, with a mesh in plain numbers and texts. It is no built-in op: those know
// nothing of meshes, and their lists are no longer than a shape may be.
bool is_sharding_op(std::string_view name);
Tensor apply_sharding_op(const Tensors& inputs, const Attributes& attributes, bool record);

}  // namespace distag::capi
