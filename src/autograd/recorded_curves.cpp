// Recorded backwards of the elementwise ops of one tensor, and of dropout.
#include <numbers>

#include "autograd/recorded_step.h"
#include "ops/attributes.h"
#include "ops/builtins.h"

namespace distag::autograd::recorded {
namespace {

Tensor square(const Tensor& x) { return mul(x, x); }
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

// An op whose slope is constant within each of its pieces.
template <const ops::Op& op>
Tensors by_pieces(const RecordedStep& step, const Tensors& gradients) {
  return {mul(gradients[0], slope_of(op, step.saved(), gradients[0]))};
}

Tensor exp_slope(const Tensor& y) { return y; }
Tensor sin_slope(const Tensor& x) { return call(ops::kCos, {x}); }
Tensor cos_slope(const Tensor& x) { return neg(call(ops::kSin, {x})); }
Tensor square_slope(const Tensor& x) { return add(x, x); }
Tensor rsqrt_slope(const Tensor& x) {
  const Tensor y = call(ops::kRsqrt, {x});
  return mul(times(y, -0.5), square(y));
}
Tensor reciprocal_slope(const Tensor& x) { return neg(square(call(ops::kReciprocal, {x}))); }
Tensor softplus_slope(const Tensor& x) { return sigmoid(x); }

Tensors no_gradients(const RecordedStep&, const Tensors& gradients) { return {repeated(gradients[0], 0.0)}; }

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

// 1 where x > 0, else alpha exp(x). An x above 0 counts as 0 there, so that its exponential is never too large.
Tensors elu_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Tensor& kept = step.saved().tensors[0];
  const Tensor zero = number_like(kept, 0.0);
  const Tensor mask = call(ops::kGt, {kept, zero});
  const double alpha = ops::get_float(step.saved().attributes, "alpha", 1.0);
  const Tensor low = times(call(ops::kExp, {where(mask, zero, step.input(0))}), alpha);
  return {mul(gradients[0], where(mask, number_like(kept, 1.0), low))};
}

// ---- slopes that are curves of their own: their values are those of the fast backward, and their slopes follow ------

template <const ops::Op& op>
Tensors slope_forward(std::span<const Tensor> inputs, const ops::Attributes&, ops::Saved* saved) {
  ops::Saved of_curve;
  of_curve.tensors = {inputs[0].contiguous()};
  if (saved != nullptr) saved->tensors = {inputs[0].snapshot()};
  return {slope_of(op, of_curve, inputs[0])};
}

template <Tensor (*curvature)(const Tensor&)>
Tensors slope_backward(const ops::Saved& saved, Tensors gradients) {
  if (gradients[0]) gradients[0] = mul(gradients[0], curvature(saved.tensors[0]));
  return gradients;
}

template <const ops::Op& op, Tensor (*curvature)(const Tensor&)>
constexpr ops::Op slope_op(const char* name) {
  return {.signature = "slope(tensor x) -> tensor",
          .forward = slope_forward<op>,
          .backward = slope_backward<curvature>,
          .name = name};
}

Tensor tanh_curvature(const Tensor& x);
Tensor sigmoid_curvature(const Tensor& x);
Tensor erf_curvature(const Tensor& x);
Tensor silu_curvature(const Tensor& x);
Tensor gelu_curvature(const Tensor& x);

constexpr ops::Op kTanhSlope = slope_op<ops::kTanh, tanh_curvature>("slope of tanh");
constexpr ops::Op kSigmoidSlope = slope_op<ops::kSigmoid, sigmoid_curvature>("slope of sigmoid");
constexpr ops::Op kErfSlope = slope_op<ops::kErf, erf_curvature>("slope of erf");
constexpr ops::Op kSiluSlope = slope_op<ops::kSilu, silu_curvature>("slope of silu");
constexpr ops::Op kGeluSlope = slope_op<ops::kGelu, gelu_curvature>("slope of gelu");

template <const ops::Op& op>
Tensor slope(const Tensor& x) {
  return call(op, {x});
}

Tensor tanh(const Tensor& x) { return call(ops::kTanh, {x}); }

// With f the slope: -2 f tanh(x), -f tanh(x / 2), -2 x f.
Tensor tanh_curvature(const Tensor& x) { return times(mul(slope<kTanhSlope>(x), tanh(x)), -2.0); }
Tensor sigmoid_curvature(const Tensor& x) { return neg(mul(slope<kSigmoidSlope>(x), tanh(times(x, 0.5)))); }
Tensor erf_curvature(const Tensor& x) { return times(mul(x, slope<kErfSlope>(x)), -2.0); }

// f (2 - x tanh(x / 2)), f being the slope of sigmoid.
Tensor silu_curvature(const Tensor& x) {
  return mul(slope<kSigmoidSlope>(x), plus(neg(mul(x, tanh(times(x, 0.5)))), 2.0));
}

// f (2 - x^2), f being the density of the normal distribution at x: the slope of erf at x / sqrt(2), times a factor.
Tensor gelu_curvature(const Tensor& x) {
  const Tensor density = times(slope<kErfSlope>(times(x, 1 / std::numbers::sqrt2)), 0.5 / std::numbers::sqrt2);
  return mul(density, plus(neg(square(x)), 2.0));
}

// ---- dropout: the same elements are dropped -------------------------------------------------------------------------

Tensors dropout_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {call(ops::kDropout, gradients, step.saved().attributes)};
}

constexpr RecordedOp kCurves[] = {
    {&ops::kExp, by_result<exp_slope>},
    {&ops::kTanh, by_argument<slope<kTanhSlope>>},
    {&ops::kSigmoid, by_argument<slope<kSigmoidSlope>>},
    {&ops::kSqrt, sqrt_gradients},
    {&ops::kLog, log_gradients},
    {&ops::kRelu, relu_gradients},
    {&ops::kSin, by_argument<sin_slope>},
    {&ops::kCos, by_argument<cos_slope>},
    {&ops::kSquare, by_argument<square_slope>},
    {&ops::kRsqrt, by_argument<rsqrt_slope>},
    {&ops::kReciprocal, by_argument<reciprocal_slope>},
    {&ops::kErf, by_argument<slope<kErfSlope>>},
    {&ops::kFloor, no_gradients},
    {&ops::kRound, no_gradients},
    {&ops::kSign, no_gradients},
    {&ops::kSilu, by_argument<slope<kSiluSlope>>},
    {&ops::kSoftplus, by_argument<softplus_slope>},
    {&ops::kGelu, by_argument<slope<kGeluSlope>>},
    {&kTanhSlope, by_argument<tanh_curvature>},
    {&kSigmoidSlope, by_argument<sigmoid_curvature>},
    {&kErfSlope, by_argument<erf_curvature>},
    {&kSiluSlope, by_argument<silu_curvature>},
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
