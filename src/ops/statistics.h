#pragma once

#include "tensor/attributes.h"
#include "tensor/tensor.h"

namespace distag::ops {

// For each row of a row-major matrix of floats: the mean, and sum((x - mean)^2) / divisor, in float64: [rows].
struct Moments {
  Tensor means;
  Tensor rests;  // rounding errors of the means for float64, which matter beside a small spread; 0 for float32
  Tensor variances;

  Moments(const char* op, const Tensor& matrix, double divisor, int64_t rows, int64_t count);
};

// (x - mean) factor of each row, in the dtype of x. `means`, `rests` (undefined: 0) and `factors` are float64[rows].
Tensor centered_rows(const char* op, const Tensor& matrix, const Tensor& means, const Tensor& rests,
                     const Tensor& factors, int64_t rows, int64_t count);

// The rounding errors of the sums of a and b, all float64; 0 for sums that are not finite.
Tensor rests_of_sum(const Tensor& a, const Tensor& b, const Tensor& sums);

// The sizes of the last dims of x that make up a row; attribute "normalized_dims" is their number. Throws
// INVALID_ARGUMENT if x has fewer dims.
Dims normalized_shape(const char* op, const Tensor& x, const Attributes& attributes);

}  // namespace distag::ops
