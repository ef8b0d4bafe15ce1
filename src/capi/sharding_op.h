#pragma once

#include <string_view>

#include "tensor/attributes.h"
#include "tensor/tensor.h"

namespace distag::capi {

// distag_redistribute by the name of an op, with a mesh in plain numbers and texts. It is none of the built-in ones:
// those know nothing of meshes, and their lists are as short as a shape.
bool is_sharding_op(std::string_view name);
Tensor apply_sharding_op(const Tensors& inputs, const Attributes& attributes, bool record);

}  // namespace distag::capi
