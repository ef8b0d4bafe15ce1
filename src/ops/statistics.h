#pragma once

#include "tensor/attributes.h"
#include "tensor/tensor.h"

namespace distag::ops {

// Of the rows of a row-major matrix of floats the mean, and sum((x - mean)^2) / divisor, in float64: [rows].
struct Moments {
  Tensor means;
  Tensor rests;  // what the means of float64 lost in rounding, which counts beside a small spread; 0 of float32
  Tensor variances;

  Moments(const char* op, const Tensor& matrix, double divisor, int64_t rows, int64_t count);
};

// (x - mean) factor of each row, in the dtype of x; means, their rests (undefined: 0), factors: float64[rows].
Tensor centered_rows(const char* op, const Tensor& matrix, const Tensor& means, const Tensor& rests,
                     const Tensor& factors, int64_t rows, int64_t count);

// What the rounded sums of a and b lack, all float64; 0 of those that are not finite.
Tensor rests_of_sum(const Tensor& a, const Tensor& b, const Tensor& sums);

// The sizes of the last dims of x, as many as attribute "normalized_dims" says, which make up a row. Throws
// INVALID_ARGUMENT where x has not as many.
Dims normalized_shape(const char* op, const Tensor& x, const Attributes& attributes);

}  // namespace distag::ops
