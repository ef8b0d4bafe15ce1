#pragma once

#include "ops/samples.h"
#include "tensor/tensor.h"

namespace distag::testing {

// Gradients to begin with: a different number for each element.
Tensor weights_like(const Tensor& output);

// The result of the op on the whole.
struct Expected {
  Tensors outputs;
  Tensors gradients;  // empty for an op without gradient
};

Expected expected_of(const Sample& sample);

}  // namespace distag::testing
