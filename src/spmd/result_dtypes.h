#pragma once

#include <vector>

#include "ops/op.h"

namespace distag::spmd {

// The dtypes of the `count` results that the op would give; elements are not read. Throws as the op does for dtypes
// that it does not take.
std::vector<Dtype> result_dtypes(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                                 size_t count);

}  // namespace distag::spmd
