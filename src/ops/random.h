#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace distag::ops {

enum class Distribution { kUniform, kNormal };

// The elements `first` to `first + count` of the tensor that rand, or randn, makes of the seed, however large it is.
// Throws UNSUPPORTED for a dtype that is not a floating one.
void fill_random(Distribution distribution, Dtype dtype, std::byte* out, int64_t count, uint64_t seed, uint64_t first);

}  // namespace distag::ops
