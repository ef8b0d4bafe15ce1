#pragma once

#include <vector>

#include "autograd/node.h"
#include "tensor/tensor.h"

namespace distag::autograd {

// The start of a pass: each root's history, and the gradient it starts with (a snapshot: later writes do not show).
struct Roots {
  std::vector<Edge> edges;
  Tensors seeds;
};

// Throws INVALID_ARGUMENT, in this order: no roots; a root that needs no gradient, has no history, or misses a seed; a
// seed of another shape or dtype. `keeps_history`: seeds that require grad do so in the pass.
Roots check_roots(const Tensors& roots, const Tensors& seeds, bool keeps_history = false);

}  // namespace distag::autograd
