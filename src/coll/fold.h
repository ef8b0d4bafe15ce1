#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace distag {

// The numbers are those of distag_reduction.
enum class Reduction : int32_t { kSum = 1, kProduct = 2, kMin = 3, kMax = 4 };

const char* reduction_name(Reduction reduction);

// An operand of a reduction; all have equal dtypes and shapes.
struct Operand {
  int64_t granule = 0;
  int64_t position = 0;
  Tensor value;
};

// Reduces the operands in the one order that all algorithms keep: ascending positions within a granule, then the
// granules, ascending. So the bits do not depend on how the operands arrived. In minima and maxima a NaN wins.
Tensor fold(Reduction reduction, std::vector<Operand> operands);

}  // namespace distag
