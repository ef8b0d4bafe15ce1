// Norms of the elements of some dims: norm, of order 1, 2 or infinity.
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/unary.h"
#include "ops/views.h"

namespace distag::ops {

struct NormOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const Order order = order_of(attributes);
    require_floating("norm", x);
    const Reduction to("norm", x, attributes);
    require(order != Order::kLargest || element_count(to.shape) == 0 || reduced_count(x.shape(), to.dims) != 0,
            "norm: {} has no elements to choose from", x);
    const Tensor y = with_shape(norm_over(x, order, to), to.shape);
    if (saved != nullptr) {
      saved->attributes = attributes;
      saved->tensors = {x.snapshot(), with_shape(y, to.kept_shape).snapshot()};
    }
    return y;
  }

  static Tensor backward(const Saved& saved, Tensor g) {
    const Tensor& x = saved.tensors[0];
    const Tensor& y = saved.tensors[1];
    g = with_shape(g, y.shape());
    const Order order = order_of(saved.attributes);
    const Tensor to = empty_like(x);
    if (order == Order::kMagnitudes) return computed("norm", to, kSignedBy, g, x);
    if (order == Order::kEuclidean) return computed("norm", to, kShareOfLength, g, x, y);
    DimSet dims;
    for (size_t d = 0; d < x.rank(); ++d) dims[d] = x.shape()[d] != y.shape()[d];
    const Tensor chosen = computed("norm", to, kIsLargest, x, y);
    const Tensor share = value_of("norm", kQuotientOf, g, sum_over(chosen, dims, y.shape()));
    return computed("norm", empty_like(x), kSignedShare, share, x, chosen);
  }

 private:
  enum class Order { kMagnitudes, kEuclidean, kLargest };

  static Order order_of(const Attributes& attributes) {
    const double p = get_float(attributes, "p", 2.0);
    if (p == 1) return Order::kMagnitudes;
    if (p == 2) return Order::kEuclidean;
    if (p == HUGE_VAL) return Order::kLargest;
    fail(Status::kInvalidArgument, "norm: p {} must be 1, 2 or inf", p);
  }

  static constexpr auto kMagnitudeOf = [](const auto& x) { return xt::fabs(x); };
  static constexpr auto kSquareOf = [](const auto& x) { return x * x; };
  static constexpr auto kRootOf = [](const auto& x) { return xt::sqrt(x); };
  // Whether a sum is in the range where squares may have exceeded a double, or lost digits.
  static constexpr auto kIsBeyond = [](const auto& sum) {
    using T = Element<decltype(sum)>;
    return select(sum < T(0x1p-900) || !(sum <= std::numeric_limits<T>::max()), T(1), T(0));
  };
  // The largest power of two not above x, which divides exactly; 1 for 0 and infinity.
  static constexpr auto kUnitOf = [](const auto& x) {
    return each(
        []<typename T>(T number) {
          const bool has_one = number > T(0) && number <= std::numeric_limits<T>::max();
          return has_one ? std::ldexp(T(1), std::ilogb(number)) : T(1);
        },
        x);
  };

  static Tensor norm_over(const Tensor& x, Order order, const Reduction& to) {
    const Dims& shape = to.kept_shape;
    if (order == Order::kMagnitudes) return sum_over(value_of("norm", kMagnitudeOf, x), to.dims, shape);
    if (order == Order::kLargest) return max_over(value_of("norm", kMagnitudeOf, x), to.dims, shape);
    return as_dtype(length_over(as_dtype(x, Dtype::kFloat64), to), x.dtype());
  }

  // Squares and their sum are doubles, also for floats.
  static Tensor length_over(const Tensor& x, const Reduction& to) {
    const Tensor sums = sum_over(value_of("norm", kSquareOf, x), to.dims, to.kept_shape);
    const Tensor are_beyond = value_of("norm", kIsBeyond, sums);
    if (x.count() == 0 || max_of(are_beyond) == 0) return combine("norm", kRootOf, sums);
    const Tensor largest = max_over(value_of("norm", kMagnitudeOf, x), to.dims, to.kept_shape);
    const Tensor units = value_of("norm", kUnitOf, largest);
    const Tensor parts = value_of("norm", kQuotientOf, x, units);
    const Tensor of_parts = sum_over(value_of("norm", kSquareOf, parts), to.dims, to.kept_shape);
    return value_of("norm", kProductOf, combine("norm", kRootOf, of_parts), units);
  }

  static double max_of(const Tensor& x) {
    DimSet all;
    for (size_t d = 0; d < x.rank(); ++d) all.set(d);
    return *max_over(x, all, Dims()).data_as<double>();
  }

  static constexpr auto kSignedBy = [](const auto& g, const auto& x) { return g * kSignOf(x); };
  // 0 if the norm is 0.
  static constexpr auto kShareOfLength = [](const auto& g, const auto& x, const auto& y) {
    using T = Element<decltype(x)>;
    return select(xt::equal(y, 0), T(0), g * (x / y));
  };
  static constexpr auto kIsLargest = [](const auto& x, const auto& y) {
    using T = Element<decltype(x)>;
    return select(xt::equal(xt::fabs(x), y), T(1), T(0));
  };
  static constexpr auto kSignedShare = [](const auto& share, const auto& x, const auto& chosen) {
    return chosen * kSignedBy(share, x);
  };
};
constexpr Op kNorm =
    make_op<NormOp>("norm(tensor x, float64 p = 2, int64[] dims = [], bool keepdim = false) -> tensor",
                    "Over dims ([] for all), which go away or stay with size 1: for p = 1 the sum of |x|, for 2 the "
                    "root of the sum of squares, for inf the largest |x|, of which equal ones share the gradient.",
                    kCheap);

}  // namespace distag::ops
