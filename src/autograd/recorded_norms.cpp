// Recorded backwards of rms_norm, group_norm and batch_norm, which are computed again with their history.
#include "autograd/recorded_step.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/views.h"

namespace distag::autograd::recorded {
namespace {

using ops::make_attributes;

Tensor mean_along(const Tensor& x, const Dims& dims) {
  return call(ops::kMean, {x}, make_attributes({{"dims", dims}, {"keepdim", true}}));
}

// x over the root of its mean square within dims, or its distance from the mean over the standard deviation.
struct NormalValues {
  Dims dims;
  bool is_centered;
  Tensor scale;
  Tensor normal;

  NormalValues(const Tensor& x, const Dims& over, double epsilon, bool centers) : dims(over), is_centered(centers) {
    const Tensor distance = centers ? sub(x, mean_along(x, dims)) : x;
    scale = call(ops::kRsqrt, {plus(mean_along(call(ops::kSquare, {distance}), dims), epsilon)});
    normal = mul(distance, scale);
  }
  // The gradient of x, from `h`, the gradient of `normal`.
  Tensor gradient(const Tensor& h) const {
    const Tensor distance = is_centered ? sub(h, mean_along(h, dims)) : h;
    return mul(scale, sub(distance, mul(normal, mean_along(mul(h, normal), dims))));
  }
};

double epsilon_of(const RecordedStep& step) { return ops::get_float(step.saved().attributes, "eps", 1e-5); }

// Without elements no row was computed.
Tensors zero_gradients(const RecordedStep& step, const Tensor& g, Tensors result, const Dims& factor_shape) {
  for (size_t i = 0; i < result.size(); ++i) {
    if (step.needs(i)) result[i] = expand(number_like(g, 0.0), i == 0 ? step.saved().shapes[0] : factor_shape);
  }
  return result;
}

Tensors rms_norm_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  Tensors result(static_cast<size_t>(saved.shapes[3][0]));
  if (gradients[0].count() == 0) return zero_gradients(step, gradients[0], std::move(result), saved.shapes[2]);
  const Tensor g = reshape(gradients[0], saved.shapes[1]);
  const Tensor x = reshape(step.input(0, ops::with_shape(saved.tensors[0], saved.shapes[0])), saved.shapes[1]);
  const NormalValues values(x, Dims{1}, epsilon_of(step), false);
  if (result.size() > 1 && step.needs(1)) {
    result[1] = reshape(sum_along(mul(g, values.normal), Dims{0}), saved.shapes[2]);
  }
  if (!step.needs(0)) return result;
  Tensor h = g;
  if (saved.tensors[2]) {
    const Tensor weight = step.input(1, ops::with_shape(saved.tensors[2], saved.shapes[2]));
    h = mul(h, reshape(weight, Dims{saved.shapes[1][1]}));
  }
  result[0] = reshape(values.gradient(h), saved.shapes[0]);
  return result;
}

// ---- group_norm, batch_norm -----------------------------------------------------------------------------------------

Dims all_but_channels(const Dims& shape) {
  Dims dims{0};
  for (size_t i = 2; i < shape.size(); ++i) dims.push_back(static_cast<int64_t>(i));
  return dims;
}

// A factor [c] in a shape that broadcasts over [n, c, ..].
Tensor beside_channels(const Tensor& factor, const Dims& shape) {
  Dims repeated;
  for (size_t i = 1; i < shape.size(); ++i) repeated.push_back(i == 1 ? shape[1] : 1);
  return reshape(factor, repeated);
}

Tensor sum_of_channels(const Tensor& x) {
  return reshape(sum_along(x, all_but_channels(x.shape())), Dims{x.shape()[1]});
}

// Sets the gradients of weight and bias; returns that of the normal values.
Tensor factor_gradients(const RecordedStep& step, const Tensor& g, const Tensor& normal, Tensors& result) {
  const ops::Saved& saved = step.saved();
  const Dims& shape = saved.shapes[0];
  if (result.size() > 1 && step.needs(1)) result[1] = sum_of_channels(mul(g, normal));
  if (result.size() > 2 && step.needs(2)) result[2] = sum_of_channels(g);
  if (!saved.tensors[3]) return g;
  return mul(g, beside_channels(step.input(1, ops::with_shape(saved.tensors[3], Dims{shape[1]})), shape));
}

Tensors group_norm_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  const Dims& shape = saved.shapes[0];
  Tensors result(static_cast<size_t>(saved.shapes[2][0]));
  const Tensor& g = gradients[0];
  if (g.count() == 0) return zero_gradients(step, g, std::move(result), Dims{shape[1]});
  const Tensor x = step.input(0, ops::with_shape(saved.tensors[0], shape));
  const NormalValues values(reshape(x, saved.shapes[1]), Dims{1}, epsilon_of(step), true);
  const Tensor h = factor_gradients(step, g, reshape(values.normal, shape), result);
  if (step.needs(0)) result[0] = reshape(values.gradient(reshape(h, saved.shapes[1])), shape);
  return result;
}

// For batch_norm with given statistics.
Tensors given_norm_gradients(const RecordedStep& step, const Tensor& g, const Tensor& x, Tensors result) {
  const ops::Saved& saved = step.saved();
  const Dims& shape = saved.shapes[0];
  const Tensor mean = step.input(3, ops::as_dtype(saved.tensors[1], g.dtype()));
  const Tensor variance = step.input(4, saved.tensors[4]);
  const Tensor factor = call(ops::kRsqrt, {plus(variance, epsilon_of(step))});
  const Tensor scale = beside_channels(factor, shape);
  const Tensor normal = mul(sub(x, beside_channels(mean, shape)), scale);
  const Tensor h = factor_gradients(step, g, normal, result);
  if (step.needs(0)) result[0] = mul(h, scale);
  if (step.needs(3)) result[3] = neg(mul(sum_of_channels(h), factor));
  if (step.needs(4)) result[4] = times(mul(sum_of_channels(mul(h, normal)), call(ops::kSquare, {factor})), -0.5);
  return result;
}

Tensors batch_norm_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  const Dims& shape = saved.shapes[0];
  Tensors result(static_cast<size_t>(saved.shapes[2][0]));
  const Tensor& g = gradients[0];
  if (g.count() == 0) return zero_gradients(step, g, std::move(result), Dims{shape[1]});
  Dims turned = shape;
  std::swap(turned[0], turned[1]);
  const Tensor x = step.input(0, ops::transposed(ops::with_shape(saved.tensors[0], turned), 0, 1));
  if (!ops::get_bool(saved.attributes, "training", true)) return given_norm_gradients(step, g, x, std::move(result));
  const NormalValues values(x, all_but_channels(shape), epsilon_of(step), true);
  const Tensor h = factor_gradients(step, g, values.normal, result);
  if (step.needs(0)) result[0] = values.gradient(h);
  return result;
}

constexpr RecordedOp kNorms[] = {
    {&ops::kRmsNorm, rms_norm_gradients},
    {&ops::kGroupNorm, group_norm_gradients},
    {&ops::kBatchNorm, batch_norm_gradients},
};

}  // namespace

std::span<const RecordedOp> norm_ops() { return kNorms; }

}  // namespace distag::autograd::recorded
