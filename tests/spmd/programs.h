#pragma once

#include "coll/mesh_state.h"
#include "ops/op.h"
#include "tensor/tensor.h"

namespace distag::testing {

// Parts of the programs that members run.

// float64 within -0.5 .. 0.5: different numbers for each seed.
Tensor numbers(const Dims& shape, int64_t seed);
// The first result of the op, recorded.
Tensor apply(const char* op, const Tensors& inputs, const ops::Attributes& attributes = {});
// The policy of a mesh that refuses hidden moves.
MeshPolicy refusing();

}  // namespace distag::testing
