#pragma once

#include <string_view>

#include "ops/attributes.h"
#include "ops/op.h"

namespace distag::spmd {

// Runs the forward of a built-in op on tensors of this member alone, without a history.
inline Tensor run_op(std::string_view name, const Tensors& inputs, const ops::Attributes& attributes = {}) {
  return ops::find_op(name)->forward(inputs, attributes, nullptr).at(0);
}

}  // namespace distag::spmd
