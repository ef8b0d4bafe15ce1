#pragma once

#include <bitset>

#include "tensor/attributes.h"
#include "tensor/tensor.h"

namespace distag::ops {

using DimSet = std::bitset<kMaxRank>;

// The dims that a reduction names; an empty list means all. Throws INVALID_ARGUMENT for a dim out of range or named
// twice.
DimSet checked_dims(const char* op, const Dims& dims, const Tensor& x);

// `shape` without the dims of the set, or with size 1 in their place.
Dims reduced_shape(const Dims& shape, const DimSet& dims, bool keepdim);
// The number of elements from which each element of the result is computed.
int64_t reduced_count(const Dims& shape, const DimSet& dims);

// The dims that an application reduces by its attributes "dims" and "keepdim", and the resulting shapes.
struct Reduction {
  DimSet dims;
  Dims shape;       // shape of the result
  Dims kept_shape;  // with size 1 for reduced dims: broadcasts to x

  Reduction(const char* op, const Tensor& x, const Attributes& attributes);
};

// Row-major results of `out_shape`, which is reduced_shape() or another shape with as many elements. Sums of bool are
// int64. Floats are summed in double, in blocks, in the same order on every machine. The sum of no elements is 0.
Tensor sum_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);
// The most numbers that are added one after the other in a dtype less precise than double.
inline constexpr int64_t kMostSummedPlainly = 128;
// The dtype in which up to `terms` numbers of a floating dtype are added one after the other to each element of a
// result, which is then cast; for sums whose order depends on data.
inline Dtype sum_dtype(Dtype dtype, int64_t terms) { return terms > kMostSummedPlainly ? Dtype::kFloat64 : dtype; }

// For a floating dtype; NaN without elements.
Tensor mean_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);
// The largest and the smallest element; NaN if there is a NaN. There must be elements to choose from.
Tensor max_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);
Tensor min_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);

}  // namespace distag::ops
