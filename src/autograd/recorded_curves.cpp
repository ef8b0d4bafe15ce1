// Recorded backwards of the elementwise ops of one tensor, and of dropout.
#include <numbers>

#include "autograd/recorded_step.h"
#include "ops/attributes.h"
#include "ops/builtins.h"

namespace distag::autograd::recorded {
namespace {

Tensor square(const Tensor& x) { return mul(x, x); }
Tensor one_minus(const Tensor& x) { return plus(neg(x), 1.0); }
Tensor over(double number, const Tensor& x) { return div(number_like(x, number), x); }
Tensor sigmoid(const Tensor& x) { return call(ops::kSigmoid, {x}); }

// The gradient times slope(y) or slope(x).
template <Tensor (*slope)(const Tensor&)>
Tensors by_result(const RecordedStep& step, const Tensors& gradients) {
  return {mul(gradients[0], slope(step.output(step.saved().tensors[0])))};
}

template <Tensor (*slope)(const Tensor&)>
Tensors by_argument(const RecordedStep& step, const Tensors& gradients) {
  return {mul(gradients[0], slope(step.input(0)))};
}

// An op whose slope is the same in all of a piece.
template <const ops::Op& op>
Tensors by_pieces(const RecordedStep& step, const Tensors& gradients) {
  return {mul(gradients[0], slope_of(op, step.saved(), gradients[0]))};
}

Tensor exp_slope(const Tensor& y) { return y; }
Tensor tanh_slope(const Tensor& y) { return one_minus(square(y)); }
Tensor sigmoid_slope(const Tensor& y) { return mul(y, one_minus(y)); }
Tensor sin_slope(const Tensor& x) { return call(ops::kCos, {x}); }
Tensor cos_slope(const Tensor& x) { return neg(call(ops::kSin, {x})); }
Tensor square_slope(const Tensor& x) { return add(x, x); }
Tensor rsqrt_slope(const Tensor& x) { return over(-0.5, mul(call(ops::kAbs, {x}), call(ops::kSqrt, {x}))); }
Tensor reciprocal_slope(const Tensor& x) { return over(-1.0, square(x)); }
Tensor softplus_slope(const Tensor& x) { return sigmoid(x); }

Tensor erf_slope(const Tensor& x) { return times(call(ops::kExp, {neg(square(x))}), 2.0 * std::numbers::inv_sqrtpi); }

Tensors no_gradients(const RecordedStep&, const Tensors& gradients) { return {repeated(gradients[0], 0.0)}; }

// s (1 + x (1 - s)) with s = sigmoid(x)
Tensor silu_slope(const Tensor& x) {
  const Tensor share = sigmoid(x);
  return mul(share, plus(mul(x, one_minus(share)), 1.0));
}

Tensors log_gradients(const RecordedStep& step, const Tensors& gradients) { return {div(gradients[0], step.input(0))}; }

Tensors sqrt_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Tensor y = step.output(step.saved().tensors[0]);
  return {div(gradients[0], add(y, y))};
}

Tensors relu_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Tensor& y = step.saved().tensors[0];
  const Tensor zero = number_like(y, 0.0);
  return {where(call(ops::kLe, {y, zero}), zero, gradients[0])};
}

// 1 where x > 0, else alpha exp(x); an x above 0 counts as 0 there, whose exponential is never too large.
Tensors elu_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Tensor& kept = step.saved().tensors[0];
  const Tensor zero = number_like(kept, 0.0);
  const Tensor mask = call(ops::kGt, {kept, zero});
  const double alpha = ops::get_float(step.saved().attributes, "alpha", 1.0);
  const Tensor low = times(call(ops::kExp, {where(mask, zero, step.input(0))}), alpha);
  return {mul(gradients[0], where(mask, number_like(kept, 1.0), low))};
}

// ---- the slope of gelu, whose own slope is density(x) (2 - x^2) -----------------------------------------------------

// f (2 - x^2), f being the density of the normal distribution at x.
Tensor gelu_curvature(const Tensor& x) {
  const Tensor squared = square(x);
  const Tensor density =
      times(call(ops::kExp, {times(squared, -0.5)}), 0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
  return mul(density, plus(neg(squared), 2.0));
}

Tensors gelu_slope_forward(std::span<const Tensor> inputs, const ops::Attributes&, ops::Saved* saved) {
  ops::Saved of_gelu;
  of_gelu.tensors = {inputs[0].contiguous()};
  if (saved != nullptr) saved->tensors = {inputs[0].snapshot()};
  return {slope_of(ops::kGelu, of_gelu, inputs[0])};
}

Tensors gelu_slope_backward(const ops::Saved& saved, Tensors gradients) {
  if (gradients[0]) gradients[0] = mul(gradients[0], gelu_curvature(saved.tensors[0]));
  return gradients;
}

constexpr ops::Op kGeluSlope{.name = "slope of gelu",
                             .signature = "gelu_slope(tensor x) -> tensor",
                             .forward = gelu_slope_forward,
                             .backward = gelu_slope_backward};

Tensor gelu_slope(const Tensor& x) { return call(kGeluSlope, {x}); }

// ---- dropout: the same elements are dropped -------------------------------------------------------------------------

Tensors dropout_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {call(ops::kDropout, gradients, step.saved().attributes)};
}

constexpr RecordedOp kCurves[] = {
    {&ops::kExp, by_result<exp_slope>},
    {&ops::kTanh, by_result<tanh_slope>},
    {&ops::kSigmoid, by_result<sigmoid_slope>},
    {&ops::kSqrt, sqrt_gradients},
    {&ops::kLog, log_gradients},
    {&ops::kRelu, relu_gradients},
    {&ops::kSin, by_argument<sin_slope>},
    {&ops::kCos, by_argument<cos_slope>},
    {&ops::kSquare, by_argument<square_slope>},
    {&ops::kRsqrt, by_argument<rsqrt_slope>},
    {&ops::kReciprocal, by_argument<reciprocal_slope>},
    {&ops::kErf, by_argument<erf_slope>},
    {&ops::kFloor, no_gradients},
    {&ops::kRound, no_gradients},
    {&ops::kSign, no_gradients},
    {&ops::kSilu, by_argument<silu_slope>},
    {&ops::kSoftplus, by_argument<softplus_slope>},
    {&ops::kGelu, by_argument<gelu_slope>},
    {&kGeluSlope, by_argument<gelu_curvature>},
    {&ops::kAbs, by_pieces<ops::kAbs>},
    {&ops::kLeakyRelu, by_pieces<ops::kLeakyRelu>},
    {&ops::kClamp, by_pieces<ops::kClamp>},
    {&ops::kElu, elu_gradients},
    {&ops::kDropout, dropout_gradients},
};

}  // namespace

std::span<const RecordedOp> curve_ops() { return kCurves; }

}  // namespace distag::autograd::recorded
