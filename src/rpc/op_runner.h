#pragma once

#include <functional>
#include <span>

#include "ops/op.h"
#include "tensor/tensor.h"

namespace distag {

// Runs a built-in op that a peer called, and records it if `record`, which this layer cannot do. Checks the arguments.
// Installed by the worker. Any thread; throws Error.
using OpRunner = std::function<Tensors(const ops::Op& op, std::span<const Tensor> inputs,
                                       const ops::Attributes& attributes, bool record)>;

}  // namespace distag
