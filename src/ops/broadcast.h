#pragma once

#include <array>
#include <span>

#include "tensor/tensor.h"

namespace distag::ops {

// The shape to which both shapes broadcast. Throws INVALID_ARGUMENT: "add: shapes [2, 3] and [4] do not broadcast".
Dims broadcast_shapes(const char* op, const Dims& a, const Dims& b);

// Strides that read `tensor` as if it had `shape`, to which it must broadcast: 0 along repeated dims.
Dims broadcast_strides(const Tensor& tensor, const Dims& shape);
// A view of the tensor with that shape.
Tensor broadcast_to(const Tensor& tensor, const Dims& shape);

// The dtype of an elementwise op, by PyTorch's rule: the highest dtype of the tensors with dims. A 0-d tensor counts
// only if its category is higher (bool < integer < floating), like a number in a program.
Dtype result_dtype(const Tensor& a, const Tensor& b);

// The values in another dtype, or x itself if it has this dtype. Any layout is accepted; a converted result is
// row-major.
Tensor as_dtype(const Tensor& x, Dtype dtype);

// The gradient of an input of `shape` and `dtype` that was broadcast and promoted: summed and cast back.
Tensor reduce_to(Tensor gradient, const Dims& shape, Dtype dtype);

// A plan for walking N operands of one broadcast shape row by row. Adjacent dims are joined if all strides allow it.
// Rows are walked in row-major order.
template <size_t N>
struct RowPlan {
  int64_t row_length = 1;
  std::array<int64_t, N> row_strides{};
  Dims outer;  // sizes of the dims outside a row
  std::array<Dims, N> outer_strides;

  RowPlan(const Dims& shape, const std::array<Dims, N>& strides);

  // Calls visit(offsets) for each row; `offsets` has the offset of the row's first element in each operand. The shape
  // must not be empty.
  template <typename Visit>
  void for_each_row(Visit visit) const;
};

template <size_t N>
RowPlan<N>::RowPlan(const Dims& shape, const std::array<Dims, N>& strides) {
  // Joins dims from the last to the first, then reverses them; the innermost joined dim is the row.
  std::array<Dims, N> joined;
  Dims sizes;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    bool joins = !sizes.empty();
    for (size_t k = 0; k < N && joins; ++k) joins = strides[k][i] == joined[k].back() * sizes.back();
    if (joins) {
      // The joined dim keeps the stride of its last part; its size grows below.
    } else {
      for (size_t k = 0; k < N; ++k) joined[k].push_back(strides[k][i]);
      sizes.push_back(1);
    }
    sizes[sizes.size() - 1] *= shape[i];
  }
  if (sizes.empty()) return;
  row_length = sizes[0];
  for (size_t k = 0; k < N; ++k) row_strides[k] = joined[k][0];
  for (size_t i = sizes.size(); i-- > 1;) {
    outer.push_back(sizes[i]);
    for (size_t k = 0; k < N; ++k) outer_strides[k].push_back(joined[k][i]);
  }
}

template <size_t N>
template <typename Visit>
void RowPlan<N>::for_each_row(Visit visit) const {
  std::array<int64_t, N> offsets{};
  Dims index;
  index.resize(outer.size());
  while (true) {
    visit(offsets);
    size_t dim = outer.size();
    while (dim > 0) {
      --dim;
      for (size_t k = 0; k < N; ++k) offsets[k] += outer_strides[k][dim];
      if (++index[dim] < outer[dim]) break;
      for (size_t k = 0; k < N; ++k) offsets[k] -= outer_strides[k][dim] * outer[dim];
      index[dim] = 0;
      if (dim == 0) return;
    }
    if (outer.empty()) return;
  }
}

}  // namespace distag::ops
