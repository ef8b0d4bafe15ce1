// Norms of the elements of some dims: norm, of order 1, 2 or infinity.
#include <cmath>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/reduce.h"
#include "ops/unary.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

enum class Order { kSum, kEuclidean, kLargest };

Order order_of(const Attributes& attributes) {
  const double p = get_float(attributes, "p", 2.0);
  if (p == 1) return Order::kSum;
  if (p == 2) return Order::kEuclidean;
  if (p == HUGE_VAL) return Order::kLargest;
  fail(Status::kInvalidArgument, "norm: p {} must be 1, 2 or inf", p);
}

constexpr auto kMagnitudeOf = [](const auto& x) { return xt::fabs(x); };
constexpr auto kSquareOf = [](const auto& x) { return x * x; };
constexpr auto kRootOf = [](const auto& x) { return xt::sqrt(x); };

// Squares and their sum are doubles, also those of floats.
Tensor norm_over(const Tensor& x, Order order, const DimSet& dims, const Dims& shape) {
  if (order == Order::kSum) return sum_over(value_of("norm", kMagnitudeOf, x), dims, shape);
  if (order == Order::kLargest) return max_over(value_of("norm", kMagnitudeOf, x), dims, shape);
  const Tensor squares = value_of("norm", kSquareOf, as_dtype(x, Dtype::kFloat64));
  return as_dtype(combine("norm", kRootOf, sum_over(squares, dims, shape)), x.dtype());
}

Tensors norm_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  const Order order = order_of(attributes);
  if (!is_floating(x.dtype())) {
    fail(Status::kUnsupported, "norm: dtype of {} is not supported: cast it first", describe(x));
  }
  const DimSet dims = checked_dims("norm", get_dims(attributes, "dims"), x);
  const Dims shape = reduced_shape(x.shape(), dims, get_bool(attributes, "keepdim", false));
  if (order == Order::kLargest && element_count(shape) > 0 && reduced_count(x.shape(), dims) == 0) {
    fail(Status::kInvalidArgument, "norm: {} has no elements to choose from", describe(x));
  }
  const Tensor y = norm_over(x, order, dims, shape);
  if (saved != nullptr) {
    saved->attributes = attributes;
    saved->tensors = {x.snapshot(), with_shape(y, reduced_shape(x.shape(), dims, true)).snapshot()};
  }
  return {y};
}

constexpr auto kSignedBy = [](const auto& g, const auto& x) {
  using T = Element<decltype(x)>;
  return g * select(x > 0, T(1), select(x < 0, T(-1), T(0)));
};
// 0 where the norm is.
constexpr auto kShareOfLength = [](const auto& g, const auto& x, const auto& y) {
  using T = Element<decltype(x)>;
  return select(xt::equal(y, 0), T(0), g * (x / y));
};
constexpr auto kIsLargest = [](const auto& x, const auto& y) {
  using T = Element<decltype(x)>;
  return select(xt::equal(xt::fabs(x), y), T(1), T(0));
};
constexpr auto kSignedShare = [](const auto& share, const auto& x, const auto& chosen) {
  return chosen * kSignedBy(share, x);
};

Tensors norm_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  const Tensor& x = saved.tensors[0];
  const Tensor& y = saved.tensors[1];
  const Tensor g = with_shape(gradients[0], y.shape());
  const Order order = order_of(saved.attributes);
  Tensor result = Tensor::empty(x.dtype(), x.shape());
  dispatch_floating("norm", x.dtype(), [&]<typename T>(T) {
    if (order == Order::kSum) return compute_alike<T>(result, kSignedBy, g, x);
    if (order == Order::kEuclidean) return compute_alike<T>(result, kShareOfLength, g, x, y);
    DimSet dims;
    for (size_t d = 0; d < x.rank(); ++d) dims[d] = x.shape()[d] != y.shape()[d];
    compute_alike<T>(result, kIsLargest, x, y);
    Tensor share = Tensor::empty(x.dtype(), y.shape());
    compute_alike<T>(share, kQuotientOf, g, sum_over(result, dims, y.shape()));
    const Tensor chosen = result;
    result = Tensor::empty(x.dtype(), x.shape());
    compute_alike<T>(result, kSignedShare, share, x, chosen);
  });
  return {result};
}

}  // namespace

constexpr Op kNorm{.name = "norm",
                   .signature = "norm(tensor x, float64 p = 2, int64[] dims = [], bool keepdim = false) -> tensor",
                   .summary =
                       "Over dims ([] for all), which go away or stay with size 1: for p = 1 the sum of |x|, for 2 the "
                       "root of the sum of squares, for inf the largest |x|, of which equal ones share the gradient.",
                   .forward = norm_forward,
                   .backward = norm_backward,
                   .is_cheap = true};

}  // namespace distag::ops
