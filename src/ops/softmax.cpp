// softmax and log_softmax along a dim, without overflow: the largest element is subtracted first.
#include "ops/softmax.h"

#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/exp_sums.h"
#include "ops/unary.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// The tensor with `dim` as its last one, row-major; from_last() reverses it.
Tensor with_last(const Tensor& x, size_t dim) {
  return dim + 1 < x.rank() ? transposed(x, dim, x.rank() - 1).contiguous() : x.contiguous();
}

Tensor from_last(const Tensor& y, size_t dim) {
  return dim + 1 < y.rank() ? transposed(y, dim, y.rank() - 1).contiguous() : y;
}

// Runs a program over all rows of tensors of one shape: `out` may be one of the inputs.
template <typename Program, typename... Inputs>
void over_rows(const char* op, const Program& program, Tensor& out, const Inputs&... inputs) {
  if (out.count() == 0) return;
  const int64_t count = out.rank() == 0 ? 1 : out.shape().back();
  dispatch_floating(op, out.dtype(), [&]<typename T>(T) {
    for_rows(out.count() / count, count, program, Rows(out.mutable_data_as<T>()),
             Rows(inputs.template data_as<T>())...);
  });
}

// kOfRow writes a row of y; kGradientOfRow writes a row of the gradient from rows of the gradient of y and of y.
template <Name kName, auto kOfRow, auto kGradientOfRow>
struct AlongDimOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor x = is_floating(inputs[0].dtype()) ? inputs[0] : as_dtype(inputs[0], Dtype::kFloat32);
    const size_t dim = checked_dim(kName.text, get_int(attributes, "dim", -1), x);
    const Tensor rows = with_last(x, dim);
    Tensor y = Tensor::empty(x.dtype(), rows.shape());
    over_rows(kName.text, kOfRow, y, rows);
    if (saved != nullptr) {
      saved->tensors = {y.snapshot()};
      saved->shapes = {Dims{static_cast<int64_t>(dim)}};
    }
    return from_last(y, dim);
  }
  static Tensor backward(const Saved& saved, Tensor g) {
    const auto dim = static_cast<size_t>(saved.shapes[0][0]);
    g = with_last(g, dim);
    Tensor out = output_for(g);
    over_rows(kName.text, kGradientOfRow, out, g, saved.tensors[0]);
    return from_last(out, dim);
  }
};

// ---- softmax --------------------------------------------------------------------------------------------------------

constexpr auto kSoftmaxOfRow = [](auto y, auto x) DISTAG_INLINE_LAMBDA {
  const auto largest = largest_of(x);
  put(y, each(math::ExpNotPositive(), x - largest));
  const auto scale = static_cast<Element<decltype(y)>>(1 / sum_of(y));
  // Through a separate row object: clang does not vectorise if the written row itself is an operand.
  put(y, row(y.data(), length_of(y)) * scale);
};

// y (g - sum(g y)). If an element y[i] is above 1/2, h = g - g[i] replaces g: y[i] near 1 has lost the digits of 1 -
// y[i], which h does not need.
constexpr auto kSoftmaxGradientOfRow = [](auto out, auto g, auto y) DISTAG_INLINE_LAMBDA {
  using T = Element<decltype(y)>;
  const T largest = largest_of(y);
  const T of_largest = largest > T(0.5) ? g.data_element(place_of(y, largest)) : T(0);
  const auto h = g - of_largest;
  const auto dot = static_cast<T>(sum_of(xt::cast<double>(h) * y));
  put(out, y * (h - dot));
};

// ---- log_softmax ----------------------------------------------------------------------------------------------------

constexpr auto kLogSoftmaxOfRow = [](auto y, auto x) DISTAG_INLINE_LAMBDA {
  const auto largest = largest_of(x);
  const auto log_sum = static_cast<Element<decltype(y)>>(log_sum_below_largest(y, x, largest));
  put(y, (x - largest) - log_sum);
};

// g - exp(y) sum(g). Near y = 0 as (g - sum(g)) - (exp(y) - 1) sum(g), which is exact if g is 0 everywhere else.
constexpr auto kLogSoftmaxGradient = []<typename T>(T g, T y, T sum) DISTAG_INLINE_LAMBDA {
  const math::ShareNotAbove1<T> share(y);
  return share.is_near_1 ? (g - sum) - share.value * sum : g - share.value * sum;
};

constexpr auto kLogSoftmaxGradientOfRow = [](auto out, auto g, auto y) DISTAG_INLINE_LAMBDA {
  const auto sum = static_cast<Element<decltype(y)>>(sum_of(g));
  put(out, each(kLogSoftmaxGradient, g, y, sum));
};

}  // namespace

Tensor log_of_terms(const Tensor& ones, const Tensor& rest) {
  const auto log_of_row = [](const auto& a, const auto& b) {
    return each([]<typename T>(T one, T other) DISTAG_INLINE_LAMBDA { return log_of_terms(one, other); }, a, b);
  };
  return combine("log", log_of_row, ones, rest);
}

Tensor log_softmax_gradient(const Tensor& gradient, const Tensor& y, const Tensor& sums) {
  return combine(
      "log_softmax", [](const auto& g, const auto& r, const auto& s) { return each(kLogSoftmaxGradient, g, r, s); },
      gradient, y, sums);
}

constexpr Op kSoftmax = make_op<AlongDimOp<"softmax", kSoftmaxOfRow, kSoftmaxGradientOfRow>>(
    "softmax(tensor x, int64 dim = -1) -> tensor",
    "exp(x) / sum(exp(x)) along dim, in the shape of x, without overflow.", kCheap);

constexpr Op kLogSoftmax = make_op<AlongDimOp<"log_softmax", kLogSoftmaxOfRow, kLogSoftmaxGradientOfRow>>(
    "log_softmax(tensor x, int64 dim = -1) -> tensor",
    "The logarithm of softmax along dim, in the shape of x, without overflow.", kCheap);

}  // namespace distag::ops
