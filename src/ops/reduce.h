#pragma once

#include <algorithm>
#include <bitset>
#include <type_traits>
#include <vector>

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
// For a floating dtype; NaN without elements.
Tensor mean_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);
// The largest and the smallest element; NaN if there is a NaN. There must be elements to choose from.
Tensor max_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);
Tensor min_over(const Tensor& x, const DimSet& dims, const Dims& out_shape);

// The type in which elements are added: integers are uint64_t, which wraps around.
template <typename T>
using RowTotal = std::conditional_t<std::is_floating_point_v<T>, double, T>;

// Sums of consecutive elements of a result, in an order that depends on data: in double, then rounded.
template <typename T>
class RowSums {
 public:
  explicit RowSums(int64_t count) : totals_(static_cast<size_t>(count)) {}
  RowTotal<T>* start() {
    std::fill(totals_.begin(), totals_.end(), RowTotal<T>(0));
    return totals_.data();
  }
  RowTotal<T>* start(const T* values) {
    for (size_t i = 0; i < totals_.size(); ++i) totals_[i] = static_cast<RowTotal<T>>(values[i]);
    return totals_.data();
  }
  void round_to(T* out) const {
    for (size_t i = 0; i < totals_.size(); ++i) out[i] = static_cast<T>(totals_[i]);
  }

 private:
  std::vector<RowTotal<T>> totals_;
};

}  // namespace distag::ops
