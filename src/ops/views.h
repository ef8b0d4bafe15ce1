#pragma once

#include <algorithm>

#include "ops/op.h"
#include "ops/reduce.h"

namespace distag::ops {

// The index of a dim of x; negative values count from the end. Rank 0 accepts 0 and -1, like rank 1. Throws
// INVALID_ARGUMENT: "softmax: dim 3 is out of range for float32[2, 3]".
size_t checked_dim(const char* op, int64_t dim, const Tensor& x);

Tensor transposed(const Tensor& x, size_t dim0, size_t dim1);

// A row-major `x` with another shape of the same count, as a view; a copy for any other layout. Throws INVALID_ARGUMENT
// for a shape of another count.
Tensor with_shape(const Tensor& x, const Dims& shape);

// Base of ops that only change the shape, and save that of their input.
struct ReshapedBack {
  static Tensor backward(const Saved& saved, Tensor g) { return with_shape(g, saved.shapes[0]); }
};

// The strides that `x` has under another shape of the same count; false if only a copy can have that shape. Throws
// INVALID_ARGUMENT for a shape of another count.
bool strides_for_shape(const Tensor& x, const Dims& shape, Dims& out_strides);

// A row-major tensor of `shape` as [outer, size, inner] around a dim.
struct Slabs {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
  Slabs(const Dims& shape, size_t dim);
};

// The size of a dim that two dims are joined to. Throws INVALID_ARGUMENT if it exceeds int64.
int64_t joined_size(const char* op, int64_t a, int64_t b);

// Elements start, start + step, ... of one dim: `count` of them, within bounds.
Tensor sliced(const Tensor& x, size_t dim, int64_t start, int64_t count, int64_t step = 1);

// A tensor of zeros.
Tensor zero_tensor(Dtype dtype, const Dims& shape);

// Copies x over `part`, a view of the fresh tensor `target`, of x's dtype and shape.
void write_part(Tensor& target, const Tensor& part, const Tensor& x);

// The tensor with all dims in this order.
Tensor permuted(const Tensor& x, const Dims& order);

// Moves some dims of a tensor to the end: a matrix with a row for each combination of indices of the other
// dims.
struct DimsLast {
  Dims order;  // order of the tensor's dims
  Dims shape;  // shape of the tensor in that order
  int64_t rows = 1;
  int64_t count = 1;

  DimsLast(const Dims& tensor_shape, const DimSet& last);
  // Returns the row-major matrix.
  Tensor gather(const Tensor& x) const { return in_order(x, order).contiguous(); }
  // Moves the dims of `matrix`, whose sizes may differ, back to their order.
  Tensor scatter(const Tensor& matrix) const;

 private:
  static Tensor in_order(const Tensor& x, const Dims& dims) {
    return std::is_sorted(dims.begin(), dims.end()) ? x : permuted(x, dims);
  }
};

}  // namespace distag::ops
