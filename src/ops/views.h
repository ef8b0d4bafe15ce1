#pragma once

#include <algorithm>

#include "ops/op.h"
#include "ops/reduce.h"

namespace distag::ops {

// Index of a dim of a tensor with `rank` dims; negative ones count from the end. `rank` 0 takes 0 and -1 like rank 1.
// Throws INVALID_ARGUMENT: "softmax: dim 3 is out of range for float32[2, 3]".
size_t checked_dim(const char* op, int64_t dim, const Tensor& x);

Tensor transposed(const Tensor& x, size_t dim0, size_t dim1);

// Row-major `x` with another shape of the same count, as a view; of any other layout a copy. Throws INVALID_ARGUMENT
// for a shape of another count.
Tensor with_shape(const Tensor& x, const Dims& shape);

// Ops that only give another shape, and save that of their input.
struct ReshapedBack {
  static Tensor backward(const Saved& saved, Tensor g) { return with_shape(g, saved.shapes[0]); }
};

// The strides that `x` has under another shape of the same count; false where only a copy can have it. Throws
// INVALID_ARGUMENT for a shape of another count.
bool strides_for_shape(const Tensor& x, const Dims& shape, Dims& out_strides);

// A row-major tensor of `shape` as [outer, size, inner] around a dim.
struct Slabs {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
  Slabs(const Dims& shape, size_t dim);
};

// The size of a dim made of two. Throws INVALID_ARGUMENT where no int64 holds it.
int64_t joined_size(const char* op, int64_t a, int64_t b);

// Elements start, start + step, ... of one dim: `count` of them, within bounds.
Tensor sliced(const Tensor& x, size_t dim, int64_t start, int64_t count, int64_t step = 1);

// Filled with zeros.
Tensor zero_tensor(Dtype dtype, const Dims& shape);

// Copies x over `part`, a view of the fresh tensor `target`, of x's dtype and shape.
void write_part(Tensor& target, const Tensor& part, const Tensor& x);

// All dims in this order.
Tensor permuted(const Tensor& x, const Dims& order);

// Some dims of a tensor made its last ones: a matrix with a row for each place
// of the others.
struct DimsLast {
  Dims order;  // of the dims of the tensor
  Dims shape;  // of the tensor in that order
  int64_t rows = 1;
  int64_t count = 1;

  DimsLast(const Dims& tensor_shape, const DimSet& last);
  // Row-major.
  Tensor gather(const Tensor& x) const { return in_order(x, order).contiguous(); }
  // The dims of `matrix`, of whatever sizes, as they were.
  Tensor scatter(const Tensor& matrix) const;

 private:
  static Tensor in_order(const Tensor& x, const Dims& dims) {
    return std::is_sorted(dims.begin(), dims.end()) ? x : permuted(x, dims);
  }
};

}  // namespace distag::ops
