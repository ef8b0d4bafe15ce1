#pragma once

#include "tensor/tensor.h"

namespace distag::ops {

// The last two dims of a tensor with at least two, as BLAS reads them: row by row, or column by column (transposed).
struct Matrix {
  int64_t rows = 0;
  int64_t columns = 0;
  bool is_transposed = false;
  int64_t leading = 1;  // elements from one row (column) to the next
};

// Whether BLAS can read the last two dims of `x` in place; fills `matrix` then.
bool as_matrix(const Tensor& x, Matrix& matrix);
// `x` itself, or a row-major copy if BLAS cannot read it.
Tensor readable_by_blas(const Tensor& x);

// out = a b + beta out for one pair of matrices of T, which is float, double or int64_t; out is row-major.
// Throws UNSUPPORTED when a size does not fit into the integers of BLAS.
template <typename T>
void multiply(T* out, const T* a, const Matrix& a_matrix, const T* b, const Matrix& b_matrix, T beta);

// Batched product of tensors of one dtype with at least two dims each: [.., n, k] [.., k, m] -> [.., n, m]. Inner sizes
// must match, and batches broadcast.
Tensor product(const char* op, const Tensor& a, const Tensor& b);

}  // namespace distag::ops
