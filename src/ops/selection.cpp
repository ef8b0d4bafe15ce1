// Ops that order the elements of a dim or find some of them: topk, sort, min_with_indices, max_with_indices, nonzero.
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// The dims of a tensor with one of them made the last, and back; of no dims there is nothing to move.
struct MovedLast {
  Dims order;
  Dims inverse;

  MovedLast(size_t rank, size_t dim) {
    for (size_t d = 0; d < rank; ++d) {
      if (d != dim) order.push_back(static_cast<int64_t>(d));
    }
    if (rank > 0) order.push_back(static_cast<int64_t>(dim));
    inverse = order;
    for (size_t d = 0; d < rank; ++d) inverse[static_cast<size_t>(order[d])] = static_cast<int64_t>(d);
  }
  // Row-major, with a row for each place of the other dims.
  Tensor rows_of(const Tensor& x) const { return permuted(x, order).contiguous(); }
  Tensor back(const Tensor& rows) const { return permuted(rows, inverse).contiguous(); }
};

// ---- topk, sort -----------------------------------------------------------------------------------------------------

// NaN is larger than all numbers, as in PyTorch; of equal elements the first one comes first.
template <typename T>
class ComesBefore {
 public:
  ComesBefore(const T* row, bool largest) : row_(row), largest_(largest) {}
  bool operator()(int64_t a, int64_t b) const {
    if (is_less(row_[a], row_[b])) return !largest_;
    if (is_less(row_[b], row_[a])) return largest_;
    return a < b;
  }

 private:
  static bool is_less(T a, T b) { return a < b || (b != b && a == a); }

  const T* const row_;
  const bool largest_;
};

template <typename T>
void choose_rows(T* values, int64_t* indices, const T* x, int64_t rows, int64_t count, int64_t k, bool largest) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (int64_t r = 0; r < rows; ++r, x += count) {
    std::iota(order.begin(), order.end(), int64_t{0});
    if (k < count)
      std::partial_sort(order.begin(), order.begin() + k, order.end(), ComesBefore<T>(x, largest));
    else
      std::sort(order.begin(), order.end(), ComesBefore<T>(x, largest));
    for (int64_t i = 0; i < k; ++i) {
      const int64_t place = order[static_cast<size_t>(i)];
      *values++ = x[place];
      *indices++ = place;
    }
  }
}

int64_t checked_k(int64_t k, const Tensor& x, size_t dim) {
  const int64_t least = x.rank() == 0 ? 1 : 0;
  const int64_t most = x.rank() == 0 ? 1 : x.shape()[dim];
  if (k >= least && k <= most) return k;
  fail(Status::kInvalidArgument, "topk: k {} is not from {} to {}, the elements of {} along dim {}", k, least, most,
       describe(x), dim);
}

Tensors chosen_along(const char* op, const Tensor& x, size_t dim, int64_t k, bool largest, Saved* saved) {
  const MovedLast moved(x.rank(), dim);
  const Tensor rows = moved.rows_of(x);
  Dims shape = rows.shape();
  const int64_t count = x.rank() == 0 ? 1 : shape.back();
  if (x.rank() > 0) shape[x.rank() - 1] = k;
  Tensor values = Tensor::empty(x.dtype(), shape);
  Tensor indices = Tensor::empty(Dtype::kInt64, shape);
  dispatch_numeric(op, x.dtype(), [&]<typename T>(T) {
    if (values.count() == 0) return;
    choose_rows(values.mutable_data_as<T>(), indices.mutable_data_as<int64_t>(), rows.data_as<T>(), values.count() / k,
                count, k, largest);
  });
  if (saved != nullptr) {
    saved->tensors = {indices.snapshot()};
    saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dim)}};
  }
  return {moved.back(values), moved.back(indices)};
}

Tensors topk_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  const size_t dim = checked_dim("topk", get_int(attributes, "dim", -1), x);
  const int64_t k = checked_k(get_int(attributes, "k", 0), x, dim);
  return chosen_along("topk", x, dim, k, get_bool(attributes, "largest", true), saved);
}

Tensors sort_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  const size_t dim = checked_dim("sort", get_int(attributes, "dim", -1), x);
  const int64_t count = x.rank() == 0 ? 1 : x.shape()[dim];
  return chosen_along("sort", x, dim, count, get_bool(attributes, "descending", false), saved);
}

// An element that was chosen has the gradient of its value, others have none.
Tensors chosen_along_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return Tensors(1);
  const Dims& shape = saved.shapes[0];
  const MovedLast moved(shape.size(), static_cast<size_t>(saved.shapes[1][0]));
  const Tensor g = moved.rows_of(gradients[0]);
  Dims rows_shape = shape;
  for (size_t d = 0; d < shape.size(); ++d) rows_shape[d] = shape[static_cast<size_t>(moved.order[d])];
  Tensor result = zero_tensor(g.dtype(), rows_shape);
  const int64_t k = shape.empty() ? 1 : g.shape().back();
  const int64_t count = shape.empty() ? 1 : rows_shape.back();
  dispatch_floating("gradient of chosen elements", g.dtype(), [&]<typename T>(T) {
    if (g.count() == 0) return;
    T* out = result.mutable_data_as<T>();
    const T* in = g.data_as<T>();
    const auto* places = saved.tensors[0].data_as<int64_t>();
    for (int64_t i = 0; i < g.count(); ++i) out[i / k * count + places[i]] = in[i];
  });
  return {moved.back(result)};
}

}  // namespace

constexpr Op kTopk{
    .name = "topk",
    .signature = "topk(tensor x, int64 k, int64 dim = -1, bool largest = true) -> tensor, tensor",
    .summary =
        "The k largest (or smallest) elements of x along dim in their order, and their indices (int64); a NaN is the "
        "largest, of equal ones the first comes first.",
    .forward = topk_forward,
    .backward = chosen_along_backward,
    .is_cheap = true};

constexpr Op kSort{.name = "sort",
                   .signature = "sort(tensor x, int64 dim = -1, bool descending = false) -> tensor, tensor",
                   .summary =
                       "The elements of x along dim in their order, and their indices (int64); a NaN is the largest, "
                       "equal ones stay in order.",
                   .forward = sort_forward,
                   .backward = chosen_along_backward,
                   .is_cheap = true};

// ---- min_with_indices, max_with_indices -----------------------------------------------------------------------------

namespace {

// The first NaN wins over all numbers, as in PyTorch.
template <typename T, bool kOfLargest>
int64_t first_extreme(const T* row, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (row[i] != row[i]) return i;
    if (kOfLargest ? row[i] > row[best] : row[i] < row[best]) best = i;
  }
  return best;
}

template <bool kOfLargest>
Tensors extreme_along(const char* op, const Tensor& x, const Attributes& attributes, Saved* saved) {
  const size_t dim = checked_dim(op, get_int(attributes, "dim", -1), x);
  const MovedLast moved(x.rank(), dim);
  const Tensor rows = moved.rows_of(x);
  const int64_t count = x.rank() == 0 ? 1 : x.shape()[dim];
  const bool keepdim = get_bool(attributes, "keepdim", false);
  Dims shape;
  for (size_t d = 0; d < x.rank(); ++d) {
    if (d != dim) shape.push_back(x.shape()[d]);
    if (d == dim && keepdim) shape.push_back(1);
  }
  if (count == 0 && element_count(shape) > 0) {
    fail(Status::kInvalidArgument, "{}: {} has no elements along dim {}", op, describe(x), dim);
  }
  Tensor values = Tensor::empty(x.dtype(), shape);
  Tensor indices = Tensor::empty(Dtype::kInt64, shape);
  dispatch(x.dtype(), [&]<typename T>(T) {
    if (values.count() == 0) return;
    T* value = values.mutable_data_as<T>();
    auto* index = indices.mutable_data_as<int64_t>();
    const T* row = rows.data_as<T>();
    for (int64_t r = 0; r < values.count(); ++r, row += count) {
      index[r] = first_extreme<T, kOfLargest>(row, count);
      value[r] = row[index[r]];
    }
  });
  if (saved != nullptr) {
    Dims rows_shape = rows.shape();
    if (x.rank() > 0) rows_shape[x.rank() - 1] = 1;
    saved->tensors = {with_shape(indices, rows_shape).snapshot()};
    saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dim)}};
  }
  return {values, indices};
}

Tensors min_with_indices_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  return extreme_along<false>("min_with_indices", inputs[0], attributes, saved);
}

Tensors max_with_indices_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  return extreme_along<true>("max_with_indices", inputs[0], attributes, saved);
}

// As if the dim had been kept.
Tensors extreme_along_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return Tensors(1);
  Dims kept = saved.shapes[0];
  if (!kept.empty()) kept[static_cast<size_t>(saved.shapes[1][0])] = 1;
  return chosen_along_backward(saved, {with_shape(gradients[0], kept)});
}

}  // namespace

constexpr Op kMinWithIndices{
    .name = "min_with_indices",
    .signature = "min_with_indices(tensor x, int64 dim = -1, bool keepdim = false) -> tensor, tensor",
    .summary =
        "The smallest elements of x along dim, which goes away or stays with size 1, and their indices (int64): the "
        "first NaN, or else the first of equal ones, which has the gradient.",
    .forward = min_with_indices_forward,
    .backward = extreme_along_backward,
    .is_cheap = true};

constexpr Op kMaxWithIndices{
    .name = "max_with_indices",
    .signature = "max_with_indices(tensor x, int64 dim = -1, bool keepdim = false) -> tensor, tensor",
    .summary =
        "The largest elements of x along dim, which goes away or stays with size 1, and their indices (int64): the "
        "first NaN, or else the first of equal ones, which has the gradient.",
    .forward = max_with_indices_forward,
    .backward = extreme_along_backward,
    .is_cheap = true};

// ---- nonzero --------------------------------------------------------------------------------------------------------

namespace {

// Calls visit(i) for each element of a row-major x that is not 0.
template <typename T, typename Visit>
void for_each_truth(const Tensor& x, Visit visit) {
  const T* data = x.data_as<T>();
  for (int64_t i = 0; i < x.count(); ++i) {
    if (data[i] != T(0)) visit(i);
  }
}

Tensors nonzero_forward(std::span<const Tensor> inputs, const Attributes&, Saved*) {
  const Tensor x = inputs[0].contiguous();
  const auto rank = static_cast<int64_t>(x.rank());
  Tensor out;
  dispatch(x.dtype(), [&]<typename T>(T) {
    int64_t count = 0;
    for_each_truth<T>(x, [&count](int64_t) { ++count; });
    out = Tensor::empty(Dtype::kInt64, Dims{count, rank});
    if (out.count() == 0) return;
    auto* index = out.mutable_data_as<int64_t>();
    for_each_truth<T>(x, [&index, &x, rank](int64_t place) {
      for (int64_t d = rank; d-- > 0; place /= x.shape()[static_cast<size_t>(d)]) {
        index[d] = place % x.shape()[static_cast<size_t>(d)];
      }
      index += rank;
    });
  });
  return {out};
}

}  // namespace

constexpr Op kNonzero{.name = "nonzero",
                      .signature = "nonzero(tensor x) -> tensor",
                      .summary =
                          "[n, dims of x]: the indices (int64) of the n elements that are not 0 (a NaN is not), "
                          "in row-major order.",
                      .forward = nonzero_forward,
                      .is_cheap = true};

}  // namespace distag::ops
