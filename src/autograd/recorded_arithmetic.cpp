// Recorded backwards of the ops of two tensors: add, sub, mul, div, pow, maximum, minimum, where, masked_fill; and of
// add_scalar, mul_scalar, neg.
#include "autograd/recorded_step.h"
#include "ops/attributes.h"
#include "ops/builtins.h"

namespace distag::autograd::recorded {
namespace {

Tensors add_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  for (size_t i = 0; i < 2; ++i) {
    if (step.needs(i)) result[i] = step.gradient_of(i, gradients[0]);
  }
  return result;
}

Tensors sub_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  if (step.needs(0)) result[0] = step.gradient_of(0, gradients[0]);
  if (step.needs(1)) result[1] = neg(step.gradient_of(1, gradients[0]));
  return result;
}

// x * x saves one tensor, and gives the sum of both gradients as the gradient of input 0.
Tensors mul_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  const Tensor& g = gradients[0];
  if (step.saved().tensors.size() == 1) {
    const Tensor product = mul(g, step.input(0));
    result[0] = add(product, product);
    return result;
  }
  if (step.needs(0)) result[0] = step.gradient_of(0, mul(g, step.input(1)));
  if (step.needs(1)) result[1] = step.gradient_of(1, mul(g, step.input(0)));
  return result;
}

Tensors div_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  const Tensor& g = gradients[0];
  const Tensor b = step.input(1);
  if (step.needs(1)) {
    const Tensor y = step.output(step.saved().tensors[2]);
    result[1] = neg(step.gradient_of(1, mul(g, div(y, b))));
  }
  if (step.needs(0)) result[0] = step.gradient_of(0, div(g, b));
  return result;
}

Tensors add_scalar_gradients(const RecordedStep&, const Tensors& gradients) { return gradients; }

Tensors mul_scalar_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {call(ops::kMulScalar, gradients, step.saved().attributes)};
}

Tensors neg_gradients(const RecordedStep&, const Tensors& gradients) { return {neg(gradients[0])}; }

// b a^(b - 1) where that is a number; 0 for b = 0, whatever a is. There an a of 0 or NaN counts as 1, so that no
// infinity arises that a later gradient would multiply by 0.
Tensor slope_in_base(const Tensor& a, const Tensor& b, const Tensor& plain_a, const Tensor& plain_b) {
  const Tensor zero = number_like(plain_a, 0.0);
  const Tensor is_odd = call(ops::kLogicalOr, {call(ops::kEq, {plain_a, zero}), call(ops::kNe, {plain_a, plain_a})});
  const Tensor mask = call(ops::kLogicalAnd, {call(ops::kEq, {plain_b, zero}), is_odd});
  const Tensor safe = where(mask, number_like(plain_a, 1.0), a);
  return mul(b, call(ops::kPow, {safe, plus(b, -1.0)}));
}

// a^b log(a); 0 for a = 0 where the power stays finite: there it counts as 1.
Tensor slope_in_exponent(const Tensor& a, const Tensor& b, const Tensor& plain_a, const Tensor& plain_b) {
  const Tensor zero = number_like(plain_a, 0.0);
  const Tensor mask = call(ops::kLogicalAnd, {call(ops::kEq, {plain_a, zero}), call(ops::kGe, {plain_b, zero})});
  const Tensor safe = where(mask, number_like(plain_a, 1.0), a);
  return mul(call(ops::kPow, {safe, b}), call(ops::kLog, {safe}));
}

Tensors pow_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  const Tensors& kept = step.saved().tensors;
  const Tensor a = step.input(0);
  const Tensor b = step.input(1);
  if (step.needs(0)) result[0] = step.gradient_of(0, mul(slope_in_base(a, b, kept[0], kept[1]), gradients[0]));
  if (step.needs(1)) result[1] = step.gradient_of(1, mul(slope_in_exponent(a, b, kept[0], kept[1]), gradients[0]));
  return result;
}

// The share of one side is constant: 0 where the other is chosen, half where both are equal, else 1.
Tensors choice_gradients(const RecordedStep& step, const Tensors& gradients, const ops::Op& is_chosen) {
  Tensors result(2);
  const Tensors& kept = step.saved().tensors;
  for (size_t i = 0; i < 2; ++i) {
    if (!step.needs(i)) continue;
    const Tensor& own = kept[i];
    const Tensor& other = kept[1 - i];
    const auto number = [&own](double value) { return number_like(own, value); };
    const Tensor share = where(call(is_chosen, {other, own}), number(0.0),
                               where(call(ops::kEq, {own, other}), number(0.5), number(1.0)));
    result[i] = step.gradient_of(i, mul(share, gradients[0]));
  }
  return result;
}

Tensors maximum_gradients(const RecordedStep& step, const Tensors& gradients) {
  return choice_gradients(step, gradients, ops::kGt);
}

Tensors minimum_gradients(const RecordedStep& step, const Tensors& gradients) {
  return choice_gradients(step, gradients, ops::kLt);
}

Tensors where_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(3);
  const Tensor& g = gradients[0];
  const Tensor& mask = step.saved().tensors[0];
  const Tensor zero = number_like(g, 0.0);
  if (step.needs(1)) result[1] = step.gradient_of(1, where(mask, g, zero));
  if (step.needs(2)) result[2] = step.gradient_of(2, where(mask, zero, g));
  return result;
}

Tensors masked_fill_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Tensor& g = gradients[0];
  if (!step.needs(0)) return {};
  return {step.gradient_of(0, where(step.saved().tensors[0], number_like(g, 0.0), g))};
}

constexpr RecordedOp kArithmetic[] = {
    {&ops::kAdd, add_gradients},         {&ops::kSub, sub_gradients},
    {&ops::kMul, mul_gradients},         {&ops::kDiv, div_gradients},
    {&ops::kPow, pow_gradients},         {&ops::kAddScalar, add_scalar_gradients},
    {&ops::kNeg, neg_gradients},         {&ops::kMulScalar, mul_scalar_gradients},
    {&ops::kMaximum, maximum_gradients}, {&ops::kMinimum, minimum_gradients},
    {&ops::kWhere, where_gradients},     {&ops::kMaskedFill, masked_fill_gradients},
};

}  // namespace

std::span<const RecordedOp> arithmetic_ops() { return kArithmetic; }

}  // namespace distag::autograd::recorded
