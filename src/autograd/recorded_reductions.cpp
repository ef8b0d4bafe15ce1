// Recorded backwards of the ops that reduce dims, of softmax and log_softmax, and of layer_norm.
#include <algorithm>
#include <cmath>

#include "autograd/recorded_step.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/views.h"

namespace distag::autograd::recorded {
namespace {

using ops::make_attributes;

Tensors sum_gradients(const RecordedStep& step, const Tensors& gradients) {
  const std::vector<Dims>& shapes = step.saved().shapes;
  return {expand(reshape(gradients[0], shapes[1]), shapes[0])};
}

Tensors mean_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Tensor& g = gradients[0];
  const std::vector<Dims>& shapes = step.saved().shapes;
  const int64_t count = g.count() == 0 ? 1 : element_count(shapes[0]) / g.count();
  const Tensor share = div(g, number_like(g, static_cast<double>(count)));
  return {expand(reshape(share, shapes[1]), shapes[0])};
}

// max and amin: the shares of equal elements are constant.
template <const ops::Op& op>
Tensors chosen_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Tensor share = slope_of(op, step.saved(), gradients[0]);
  return {mul(share, reshape(gradients[0], step.saved().shapes[0]))};
}

// ---- logsumexp, var: forward kept x with the reduced dims as its last ones ------------------------------------------

struct Groups {
  Dims reduced;  // in x
  Dims kept_shape;
  int64_t count = 1;  // elements for each one of the result
  Tensor x;           // the kept values, in the order of x

  explicit Groups(const ops::Saved& saved) : kept_shape(saved.shapes[0]) {
    const auto bits = static_cast<uint64_t>(saved.shapes[1][0]);
    Dims order;
    for (const uint64_t wanted : {uint64_t{0}, uint64_t{1}}) {
      for (size_t i = 0; i < kept_shape.size(); ++i) {
        if (((bits >> i) & 1) == wanted) order.push_back(static_cast<int64_t>(i));
      }
    }
    Dims inverse = order;
    for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    x = ops::permuted(saved.tensors[0], inverse);
    for (size_t i = 0; i < kept_shape.size(); ++i) {
      if (((bits >> i) & 1) == 0) continue;
      reduced.push_back(static_cast<int64_t>(i));
      count *= std::exchange(kept_shape[i], 1);
    }
  }
};

// g exp(x - y)
Tensors logsumexp_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Groups groups(step.saved());
  const Tensor y = step.output(ops::as_dtype(step.saved().tensors[1], groups.x.dtype()));
  const Tensor share = call(ops::kExp, {sub(step.input(0, groups.x), reshape(y, groups.kept_shape))});
  return {mul(share, reshape(gradients[0], groups.kept_shape))};
}

// 2 (x - mean) g / divisor
Tensors var_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Groups groups(step.saved());
  if (groups.x.count() == 0) return {repeated(groups.x, 0.0)};
  const Tensor x = step.input(0, groups.x);
  const Tensor mean = call(ops::kMean, {x}, make_attributes({{"dims", groups.reduced}, {"keepdim", true}}));
  const double correction = ops::get_float(step.saved().attributes, "correction", 1.0);
  const double divisor = std::max(0.0, static_cast<double>(groups.count) - correction);
  return {mul(sub(x, mean), times(reshape(gradients[0], groups.kept_shape), 2.0 / divisor))};
}

// (x - mean) g / (divisor y); 0 where y is 0.
Tensors std_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Groups groups(step.saved());
  if (groups.x.count() == 0) return {repeated(groups.x, 0.0)};
  const Tensor x = step.input(0, groups.x);
  const Tensor mean = call(ops::kMean, {x}, make_attributes({{"dims", groups.reduced}, {"keepdim", true}}));
  const double correction = ops::get_float(step.saved().attributes, "correction", 1.0);
  const double divisor = std::max(0.0, static_cast<double>(groups.count) - correction);
  const Tensor kept = ops::as_dtype(step.saved().tensors[3], x.dtype());
  const Tensor is_zero = call(ops::kEq, {kept, number_like(kept, 0.0)});
  const Tensor y = where(is_zero, number_like(kept, 1.0), step.output(kept));
  const Tensor scale = where(is_zero, number_like(kept, 0.0), div(gradients[0], times(y, divisor)));
  return {mul(sub(x, mean), reshape(scale, groups.kept_shape))};
}

// g x / y, 0 where y is 0, for p = 2; else the share of each element is constant.
Tensors norm_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  const Dims& kept_shape = saved.tensors[1].shape();
  const Tensor g = reshape(gradients[0], kept_shape);
  if (ops::get_float(saved.attributes, "p", 2.0) != 2) return {mul(slope_of(ops::kNorm, saved, gradients[0]), g)};
  const Tensor kept = ops::with_shape(saved.tensors[1], gradients[0].shape());
  const Tensor is_zero = call(ops::kEq, {saved.tensors[1], number_like(kept, 0.0)});
  const Tensor y = where(is_zero, number_like(kept, 1.0), reshape(step.output(kept), kept_shape));
  return {mul(step.input(0), where(is_zero, number_like(kept, 0.0), div(g, y)))};
}

// ---- softmax, log_softmax: forward kept y with the dim as its last one ----------------------------------------------

Tensor softmax_output(const RecordedStep& step, size_t dim) {
  const Tensor& kept = step.saved().tensors[0];
  return step.output(dim + 1 < kept.rank() ? ops::transposed(kept, dim, kept.rank() - 1) : kept);
}

// y (h - sum(h y)), with h = g - g[i] where an element y[i] is above 1/2, else h = g.
Tensors softmax_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Dims& dim = step.saved().shapes[0];
  const Tensor y = softmax_output(step, static_cast<size_t>(dim[0]));
  const Tensor& g = gradients[0];
  const Tensor is_most = call(ops::kGt, {y, number_like(y, 0.5)});
  const Tensor h = sub(g, sum_along(where(is_most, g, number_like(g, 0.0)), dim));
  return {mul(y, sub(h, sum_along(mul(h, y), dim)))};
}

// g - exp(y) sum(g); where exp(y) is above 1/2 it is 1 minus the others, and g - sum(g) is taken first.
Tensors log_softmax_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Dims& dim = step.saved().shapes[0];
  const Tensor y = softmax_output(step, static_cast<size_t>(dim[0]));
  const Tensor& g = gradients[0];
  const Tensor shares = call(ops::kExp, {y});
  const Tensor is_most = call(ops::kGt, {shares, number_like(shares, 0.5)});
  const Tensor others = sum_along(where(is_most, number_like(shares, 0.0), shares), dim);
  const Tensor sum = sum_along(g, dim);
  return {where(is_most, add(sub(g, sum), mul(others, sum)), sub(g, mul(shares, sum)))};
}

// ---- layer_norm: forward kept the normal rows and their scales, which are functions of x ----------------------------

// The scale of each row, 1 / sqrt(var + eps), as an op of x of which only the gradient is ever used:
// -scale^2 / count * normal, times the gradient of the scale.
Tensors row_scale_forward(std::span<const Tensor>, const ops::Attributes&, ops::Saved*) { return {}; }

// `normal` and `scales` with a history or without.
Tensor row_scale_gradient(const ops::Saved& saved, const Tensor& normal, const Tensor& scales, const Tensor& g) {
  const Dims& sizes = saved.shapes[0];
  const Tensor factors = times(mul(g, mul(scales, scales)), -1.0 / static_cast<double>(sizes[1]));
  const Tensor rows = mul(reshape(normal, Dims{sizes[0], sizes[1]}), reshape(factors, Dims{sizes[0], 1}));
  return reshape(rows, saved.shapes[1]);
}

Tensors row_scale_backward(const ops::Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  return {row_scale_gradient(saved, saved.tensors[0], saved.tensors[1], gradients[0])};
}

constexpr ops::Op kRowScale{.signature = "row_scale(tensor x) -> tensor",
                            .forward = row_scale_forward,
                            .backward = row_scale_backward,
                            .name = "scale of layer_norm"};

// Both with their history: `normal` in x's shape, `scales` as [rows].
struct NormalRows {
  Tensor normal;
  Tensor scales;

  NormalRows(const RecordedStep& step, const Dims& shape) {
    const Tensors& kept = step.saved().tensors;
    const Dims& sizes = step.saved().shapes[0];
    ops::Saved of_normal;
    of_normal.tensors = {kept[0], kept[1], Tensor()};
    of_normal.shapes = {Dims{sizes[0], sizes[1], 1}, shape};
    of_normal.needed = 1;
    ops::Saved of_scales = of_normal;
    normal = recorded_output(ops::kLayerNorm, std::move(of_normal), {step.edge(0)}, kept[0]);
    scales = recorded_output(kRowScale, std::move(of_scales), {step.edge(0)}, kept[1]);
  }
};

Tensors row_scale_gradients(const RecordedStep& step, const Tensors& gradients) {
  const NormalRows rows(step, step.saved().shapes[1]);
  return {row_scale_gradient(step.saved(), rows.normal, rows.scales, gradients[0])};
}

// With h = weight g: (h - mean(h) - normal mean(h normal)) scale
Tensor layer_norm_input_gradient(const RecordedStep& step, const NormalRows& rows, const Tensor& normal,
                                 const Tensor& g) {
  const ops::Saved& saved = step.saved();
  const auto count = static_cast<double>(saved.shapes[0][1]);
  Tensor h = g;
  if (saved.tensors[2]) h = mul(h, reshape(step.input(1, saved.tensors[2]), Dims{1, saved.shapes[0][1]}));
  const Tensor mean = times(sum_along(h, Dims{1}), 1.0 / count);
  const Tensor slope = times(sum_along(mul(h, normal), Dims{1}), 1.0 / count);
  const Tensor centered = sub(sub(h, mean), mul(normal, slope));
  return reshape(mul(centered, reshape(rows.scales, Dims{saved.shapes[0][0], 1})), saved.shapes[1]);
}

Tensors layer_norm_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  const Dims matrix{saved.shapes[0][0], saved.shapes[0][1]};
  Tensors result(static_cast<size_t>(saved.shapes[0][2]));
  if (gradients[0].count() == 0) {  // no row was computed
    for (size_t i = 0; i < result.size(); ++i) {
      if (step.needs(i)) result[i] = expand(number_like(gradients[0], 0.0), saved.shapes[i + 1]);
    }
    return result;
  }
  const Tensor g = reshape(gradients[0], matrix);
  const NormalRows rows(step, saved.shapes[1]);
  const Tensor normal = reshape(rows.normal, matrix);
  if (step.needs(0)) result[0] = layer_norm_input_gradient(step, rows, normal, g);
  if (result.size() > 1 && step.needs(1)) {
    result[1] = reshape(sum_along(mul(g, normal), Dims{0}), saved.shapes[2]);
  }
  if (result.size() > 2 && step.needs(2)) result[2] = reshape(sum_along(g, Dims{0}), saved.shapes[3]);
  return result;
}

constexpr RecordedOp kReductions[] = {
    {&ops::kSum, sum_gradients},
    {&ops::kMean, mean_gradients},
    {&ops::kMax, chosen_gradients<ops::kMax>},
    {&ops::kAmin, chosen_gradients<ops::kAmin>},
    {&ops::kLogsumexp, logsumexp_gradients},
    {&ops::kVar, var_gradients},
    {&ops::kStd, std_gradients},
    {&ops::kNorm, norm_gradients},
    {&ops::kSoftmax, softmax_gradients},
    {&ops::kLogSoftmax, log_softmax_gradients},
    {&ops::kLayerNorm, layer_norm_gradients},
    {&kRowScale, row_scale_gradients},
};

}  // namespace

std::span<const RecordedOp> reduction_ops() { return kReductions; }

}  // namespace distag::autograd::recorded
