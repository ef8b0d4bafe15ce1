// Recorded backwards of the losses.
#include "autograd/recorded_step.h"
#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/views.h"

namespace distag::autograd::recorded {
namespace {

using ops::make_attributes;

// ---- pairs of elements: a slope, times a constant factor, times the gradient ----------------------------------------

Tensor pair_gradient(const RecordedStep& step, size_t input, const Tensor& slope, const Tensor& g) {
  const ops::Saved& saved = step.saved();
  const Tensor scaled = mul(mul(expand(slope, saved.shapes[2]), saved.tensors[2]), g);
  return step.gradient_of(input, scaled);
}

Tensors mse_loss_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  const Tensor halves[] = {times(step.input(0), 0.5), times(step.input(1), 0.5)};
  for (size_t i = 0; i < 2; ++i) {
    if (step.needs(i)) result[i] = pair_gradient(step, i, sub(halves[i], halves[1 - i]), gradients[0]);
  }
  return result;
}

// The sign of the difference is constant.
Tensors l1_loss_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  const Tensors& kept = step.saved().tensors;
  for (size_t i = 0; i < 2; ++i) {
    if (!step.needs(i)) continue;
    const Tensor& a = kept[i];
    const Tensor& b = kept[1 - i];
    const auto number = [&a](double value) { return number_like(a, value); };
    const Tensor sign =
        where(call(ops::kGt, {a, b}), number(1.0), where(call(ops::kLt, {a, b}), number(-1.0), number(0.0)));
    result[i] = pair_gradient(step, i, sign, gradients[0]);
  }
  return result;
}

// The difference, limited to -delta .. delta.
Tensors huber_loss_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  const double delta = ops::get_float(step.saved().attributes, "delta", 1.0);
  const ops::Attributes limits = make_attributes({{"min", -delta}, {"max", delta}});
  const Tensor pair[] = {step.input(0), step.input(1)};
  for (size_t i = 0; i < 2; ++i) {
    if (!step.needs(i)) continue;
    const Tensor slope = call(ops::kClamp, {sub(pair[i], pair[1 - i])}, limits);
    result[i] = pair_gradient(step, i, slope, gradients[0]);
  }
  return result;
}

Tensors logit_loss_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  const Tensor x = step.input(0);
  if (step.needs(0)) {
    // sigmoid(x) - t; for x > 0 as (1 - t) - sigmoid(-x).
    const Tensor t = step.input(1);
    const Tensor& kept = step.saved().tensors[0];
    const Tensor is_above = call(ops::kGt, {kept, number_like(kept, 0.0)});
    const Tensor share = call(ops::kSigmoid, {where(is_above, neg(x), x)});
    const Tensor slope = where(is_above, sub(plus(neg(t), 1.0), share), sub(share, t));
    result[0] = pair_gradient(step, 0, slope, gradients[0]);
  }
  if (step.needs(1)) result[1] = pair_gradient(step, 1, neg(x), gradients[0]);
  return result;
}

// The slopes: -t in logs; log(t) + 1 - logs in t, but 0 where t is 0. With log_target: -exp(t), exp(t) (t + 1 - logs).
Tensors kl_div_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  const Tensor x = step.input(0);
  const Tensor t = step.input(1);
  if (ops::get_bool(step.saved().attributes, "log_target", false)) {
    const Tensor share = call(ops::kExp, {t});
    if (step.needs(0)) result[0] = pair_gradient(step, 0, neg(share), gradients[0]);
    if (step.needs(1)) result[1] = pair_gradient(step, 1, mul(share, plus(sub(t, x), 1.0)), gradients[0]);
    return result;
  }
  if (step.needs(0)) result[0] = pair_gradient(step, 0, neg(t), gradients[0]);
  if (step.needs(1)) {
    const Tensor is_zero = call(ops::kEq, {t, number_like(t, 0.0)});
    const Tensor above = where(is_zero, number_like(t, 1.0), t);  // keeps the gradient of the logarithm finite
    const Tensor slope = where(is_zero, number_like(t, 0.0), sub(plus(call(ops::kLog, {above}), 1.0), x));
    result[1] = pair_gradient(step, 1, slope, gradients[0]);
  }
  return result;
}

// ---- classifications ------------------------------------------------------------------------------------------------

// The values that forward kept, in the shape of the logits: classes are the last dim of the kept rows, and dim 1 of the
// logits, or their only one.
struct Classified {
  Tensor logits;
  size_t class_dim;
  Tensor counts;        // bool, size 1 along the classes: whether the row has a target
  Tensor minus_target;  // -1 at the target, else 0
  Tensor scale;         // per row: its factor, times the gradient; size 1 along the classes

  Classified(const ops::Saved& saved, const Tensor& g) {
    const Tensor& rows = saved.tensors[0];
    class_dim = rows.rank() == 1 ? 0 : 1;
    logits = classes_second(rows);
    Dims row_shape = rows.shape();
    row_shape.pop_back();
    Dims kept_shape = logits.shape();
    kept_shape[class_dim] = 1;
    const Tensor& targets = saved.tensors[3];
    const Tensor has_target = call(ops::kGe, {targets, Tensor::scalar(Dtype::kInt64, 0)});
    counts = ops::with_shape(has_target, kept_shape);
    // A row without a target may have any factor.
    const Tensor factors = where(has_target, saved.tensors[4], number_like(rows, 0.0));
    scale = reshape(mul(ops::with_shape(factors, row_shape), g), kept_shape);
    ops::Saved of_target = saved;
    of_target.tensors[4] = repeated(factors, 1.0);
    minus_target = slope_of(ops::kNllLoss, of_target, factors);
  }

  static Tensor classes_second(const Tensor& rows) {
    if (rows.rank() <= 2) return rows;
    Dims order{0, static_cast<int64_t>(rows.rank() - 1)};
    for (size_t i = 1; i + 1 < rows.rank(); ++i) order.push_back(static_cast<int64_t>(i));
    return ops::permuted(rows, order);
  }
};

// scale (softmax(x) - [target]), where minus the sum of the other shares stands for the share of the target minus 1.
Tensors cross_entropy_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Classified batch(step.saved(), gradients[0]);
  const Tensor shares = call(ops::kSoftmax, {step.input(0, batch.logits)},
                             make_attributes({{"dim", static_cast<int64_t>(batch.class_dim)}}));
  const Tensor zero = number_like(shares, 0.0);
  const Tensor is_target = call(ops::kNe, {batch.minus_target, zero});
  const Tensor others = sum_along(where(is_target, zero, shares), Dims{static_cast<int64_t>(batch.class_dim)});
  const Tensor all = mul(where(is_target, neg(others), shares), batch.scale);
  return {where(batch.counts, all, number_like(all, 0.0))};
}

Tensors nll_loss_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Classified batch(step.saved(), gradients[0]);
  const Tensor zero = number_like(batch.logits, 0.0);
  const Tensor is_target = call(ops::kNe, {batch.minus_target, zero});
  return {where(is_target, mul(batch.minus_target, batch.scale), zero)};
}

constexpr RecordedOp kLosses[] = {
    {&ops::kMseLoss, mse_loss_gradients},
    {&ops::kL1Loss, l1_loss_gradients},
    {&ops::kHuberLoss, huber_loss_gradients},
    {&ops::kBinaryCrossEntropyWithLogits, logit_loss_gradients},
    {&ops::kCrossEntropy, cross_entropy_gradients},
    {&ops::kNllLoss, nll_loss_gradients},
    {&ops::kKlDiv, kl_div_gradients},
};

}  // namespace

std::span<const RecordedOp> loss_ops() { return kLosses; }

}  // namespace distag::autograd::recorded
