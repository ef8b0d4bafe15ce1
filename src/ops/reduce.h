#pragma once

#include <bitset>

#include "tensor/attributes.h"
#include "tensor/tensor.h"

namespace distag::ops {

using DimSet = std::bitset<kMaxRank>;

// The dims that a reduction names: none named are all of them. Throws INVALID_ARGUMENT for one out of range or twice.
DimSet checked_dims(const char* op, const Dims& dims, const Tensor& x);

// `shape` without the dims of the set, or with size 1 in their place.
Dims reduced_shape(const Dims& shape, const DimSet& dims, bool keepdim);
// The number of elements that each element of the result is made of.
int64_t reduced_count(const Dims& shape, const DimSet& dims);

// Which dims an application reduces by its attributes "dims" and "keepdim", and what shape that gives.
struct Reduction {
  DimSet dims;
  Dims shape;       // of the result
  Dims kept_shape;  // with the reduced dims as 1: broadcasts to x

  Reduction(const char* op, const Tensor& x, const Attributes& attributes);
};

// Row-major results of `out_shape`, which is reduced_shape() or another shape of that count. Sums of bool are int64.
// Floats are summed in double, in blocks, in an order that no machine changes. Without elements a sum is 0.
Tensor sum_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);
// The most numbers that are added one after the other in a dtype less exact than double.
inline constexpr int64_t kMostSummedPlainly = 128;
// In which dtype up to `terms` numbers of a floating dtype are added one after the other to each element of a result,
// which is then cast; for sums in an order that data decides.
inline Dtype sum_dtype(Dtype dtype, int64_t terms) { return terms > kMostSummedPlainly ? Dtype::kFloat64 : dtype; }

// Of a floating dtype; NaN without elements.
Tensor mean_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);
// The largest; the smallest. NaN where there is one. There must be elements to choose from.
Tensor max_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);
Tensor min_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);

}  // namespace distag::ops
