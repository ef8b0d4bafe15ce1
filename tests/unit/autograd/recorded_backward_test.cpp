// Every op with a gradient: its recorded backward equals the fast one, and the gradients of what it gives equal finite
// differences, for one more pass and for a third.
#include "autograd/recorded_step.h"

#include <gtest/gtest.h>

#include <set>

#include "autograd/autograd.h"
#include "autograd/context.h"
#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/samples.h"
#include "support/expect.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

using Numbers = std::vector<double>;

double weight(size_t i, double start) { return start + 0.17 * static_cast<double>((i * 5) % 11); }

Tensor weights_like(const Tensor& tensor, double start) {
  Numbers numbers(static_cast<size_t>(tensor.count()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = weight(i, start);
  return tensor_of<double>(tensor.shape(), numbers);
}

bool takes_gradient(const Sample& sample, size_t input) {
  const bool is_constant = ((ops::find_op(sample.op)->constant >> input) & 1) != 0;
  return !is_constant && sample.inputs[input] && is_floating(sample.inputs[input].dtype());
}

// The arguments of a sample as one list of numbers: its inputs that take gradients, and a seed for each output.
struct Point {
  const Sample& sample;
  const ops::Op& op;
  Tensors inputs;
  Tensors seeds;
  Tensors outputs;
  Tensors leaves;

  Point(const Sample& s, const Numbers* moved) : sample(s), op(*ops::find_op(s.op)), inputs(s.inputs) {
    size_t done = 0;
    const auto take = [&](const Tensor& tensor, bool keeps_layout) {
      auto numbers = values_of<double>(tensor);
      for (double& number : numbers) {
        if (moved != nullptr) number = (*moved)[done];
        ++done;
      }
      Tensor made = tensor_of<double>(tensor.shape(), numbers);
      if (keeps_layout && !tensor.is_contiguous()) made = with_gaps(made);
      autograd::set_requires_grad(made, true);
      leaves.push_back(made);
      return made;
    };
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (takes_gradient(s, i)) inputs[i] = take(inputs[i], true);
    }
    for (const Tensor& output : autograd::apply(op, inputs, s.attributes)) {
      if (is_floating(output.dtype())) outputs.push_back(output);  // others are indices
    }
    for (const Tensor& output : outputs) seeds.push_back(take(weights_like(output, 0.3), false));
  }

  Numbers numbers() const {
    Numbers all;
    for (const Tensor& leaf : leaves) {
      const auto some = values_of<double>(leaf);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  // The gradients of the leaves in the context, 0 for a leaf that has none.
  Numbers gradients_in(Context& context) const {
    Numbers all;
    const auto gradients = context.gradients();
    for (const Tensor& leaf : leaves) {
      const Tensor* found = gradients->find(leaf);
      const auto some = found == nullptr ? Numbers(static_cast<size_t>(leaf.count())) : values_of<double>(*found);
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
};

std::string title(const Sample& sample) {
  std::string text = sample.op + "(";
  for (const Tensor& input : sample.inputs) text += describe(input) + " ";
  for (const auto& [name, value] : sample.attributes) text += name + " ";
  return text + ")";
}

BackwardOptions options_of(bool creates_graph, Tensors seeds = {}) {
  BackwardOptions options;
  options.create_graph = creates_graph;
  options.seeds = std::move(seeds);
  return options;
}

// A weighted sum of the gradients that require grad; undefined if none does.
Tensor weighted_sum(Context& context, double start) {
  Tensor sum;
  const auto gradients = context.gradients();
  for (const auto& entry : gradients->entries) {
    if (!autograd::requires_grad(entry.gradient)) continue;
    const Tensor product = autograd::recorded::mul(entry.gradient, weights_like(entry.gradient, start));
    const Tensor one = autograd::recorded::call(ops::kSum, {product});
    sum = sum ? autograd::recorded::add(sum, one) : one;
  }
  return sum;
}

// The same sum over all gradients of a pass, of numbers alone.
double plain_sum(const Numbers& gradients, const Point& point, double start) {
  double sum = 0;
  size_t done = 0;
  for (const Tensor& leaf : point.leaves) {
    for (size_t i = 0; i < static_cast<size_t>(leaf.count()); ++i) sum += gradients[done++] * weight(i, start);
  }
  return sum;
}

Numbers first_gradients(const Point& point) {
  auto context = make_local_context();
  context->backward(point.outputs, options_of(false, point.seeds));
  return point.gradients_in(*context);
}

constexpr double kFirst = 0.4;
constexpr double kSecond = 0.2;

// The gradients of the weighted sum of the first gradients; `creates`: with a history, in `second`.
Numbers second_gradients(const Point& point, bool creates, Context& second) {
  auto first = make_local_context();
  first->backward(point.outputs, options_of(true, point.seeds));
  const Tensor sum = weighted_sum(*first, kFirst);
  if (sum) second.backward({sum}, options_of(creates));
  return point.gradients_in(second);
}

void expect_near(const Numbers& actual, const Numbers& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1 + std::fabs(expected[i]))) << "number " << i;
  }
}

// Ops with a gradient that have none; the comment of create_graph in distag.h names them.
const std::set<std::string> kWithout = {};

std::vector<Sample> recorded_samples() {
  std::vector<Sample> samples = gradient_samples();
  std::erase_if(samples, [](const Sample& sample) { return kWithout.contains(sample.op); });
  return samples;
}

TEST(RecordedBackwardTest, EveryOpWithAGradientHasOneOrIsNamed) {
  for (const ops::Op* op : ops::builtins()) {
    const bool has_one = autograd::find_recorded_backward(*op) != nullptr;
    EXPECT_EQ(has_one, op->backward != nullptr && !kWithout.contains(op->name)) << op->name;
  }
}

TEST(RecordedBackwardTest, AnOpWithoutOneIsRefusedByName) {
  for (const Sample& sample : gradient_samples()) {
    if (!kWithout.contains(sample.op)) continue;
    const Point point(sample, nullptr);
    auto context = make_local_context();
    const Error error = error_of([&] { context->backward(point.outputs, options_of(true, point.seeds)); });
    EXPECT_EQ(error.status(), Status::kUnsupported);
    EXPECT_NE(error.message().find(sample.op), std::string::npos) << error.message();
  }
}

TEST(RecordedBackwardTest, EqualsTheFastOne) {
  for (const Sample& sample : recorded_samples()) {
    SCOPED_TRACE(title(sample));
    const Point point(sample, nullptr);
    auto context = make_local_context();
    context->backward(point.outputs, options_of(true, point.seeds));
    expect_near(point.gradients_in(*context), first_gradients(point), 1e-12);
    const auto gradients = context->gradients();
    for (const auto& entry : gradients->entries) {
      ASSERT_EQ(entry.gradient.shape(), entry.leaf.shape());
      ASSERT_EQ(entry.gradient.dtype(), entry.leaf.dtype());
    }
  }
}

// Slopes in the tails are differences from 1, which have no digits of their own.
TEST(RecordedBackwardTest, EqualsTheFastOneInTheTails) {
  const Tensor x = tensor_of<double>({2, 3}, {-30, 25, -18, 38, -5, 0.5});
  const Tensor rows = tensor_of<double>({2, 3}, {40, -2, 3, -45, 1, -60});
  const Tensor shares = tensor_of<double>({2, 3}, {0, 1, 0.25, 1, 0, 0.5});
  const Tensor targets = tensor_of<int64_t>({2}, {0, 1});
  std::vector<Sample> samples;
  for (const char* op : {"tanh", "sigmoid", "erf", "silu", "gelu", "softplus"}) samples.push_back({op, {x}, {}});
  for (const char* op : {"softmax", "log_softmax", "logsumexp"}) samples.push_back({op, {rows}, {}});
  samples.push_back({"cross_entropy", {rows, targets}, {}});
  samples.push_back({"binary_cross_entropy_with_logits", {x, shares}, {}});
  for (const Sample& sample : samples) {
    SCOPED_TRACE(title(sample));
    const Point point(sample, nullptr);
    auto context = make_local_context();
    context->backward(point.outputs, options_of(true, point.seeds));
    const Numbers actual = point.gradients_in(*context);
    const Numbers expected = first_gradients(point);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], 1e-13 * std::fabs(expected[i])) << "number " << i;
    }
  }
}

TEST(RecordedBackwardTest, GradientsOfGradientsEqualFiniteDifferences) {
  constexpr double kStep = 1e-5;
  for (const Sample& sample : recorded_samples()) {
    SCOPED_TRACE(title(sample));
    const Point point(sample, nullptr);
    const Numbers start = point.numbers();
    auto second = make_local_context();
    const Numbers actual = second_gradients(point, false, *second);
    for (size_t i = 0; i < start.size(); ++i) {
      Numbers moved = start;
      moved[i] = start[i] + kStep;
      const Point above(sample, &moved);
      moved[i] = start[i] - kStep;
      const Point below(sample, &moved);
      const double expected =
          (plain_sum(first_gradients(above), above, kFirst) - plain_sum(first_gradients(below), below, kFirst)) /
          (2 * kStep);
      ASSERT_NEAR(actual[i], expected, 1e-6 * (1 + std::fabs(expected))) << "number " << i;
    }
  }
}

// In one direction; and a second pass that records equals one that does not.
TEST(RecordedBackwardTest, AThirdPassEqualsFiniteDifferences) {
  constexpr double kStep = 1e-5;
  for (const Sample& sample : recorded_samples()) {
    SCOPED_TRACE(title(sample));
    const Point freed(sample, nullptr), point(sample, nullptr);
    auto plain = make_local_context();
    const Numbers expected_second = second_gradients(freed, false, *plain);
    auto second = make_local_context();
    expect_near(second_gradients(point, true, *second), expected_second, 1e-12);
    const Tensor sum = weighted_sum(*second, kSecond);
    auto third = make_local_context();
    if (sum) third->backward({sum}, {});
    const Numbers gradients = point.gradients_in(*third);
    Numbers above = point.numbers();
    Numbers below = above;
    double actual = 0;
    for (size_t i = 0; i < above.size(); ++i) {
      const double direction = weight(i + 3, -0.9);
      above[i] += kStep * direction;
      below[i] -= kStep * direction;
      actual += direction * gradients[i];
    }
    const auto value_at = [&sample](const Numbers& numbers) {
      const Point moved(sample, &numbers);
      auto context = make_local_context();
      return plain_sum(second_gradients(moved, false, *context), moved, kSecond);
    };
    const double expected = (value_at(above) - value_at(below)) / (2 * kStep);
    ASSERT_NEAR(actual, expected, 1e-5 * (1 + std::fabs(expected)));
  }
}

// A power of 0, and 0 to a power: no NaN from the side that is not chosen.
TEST(RecordedBackwardTest, PowersOfZeroHaveSecondGradients) {
  const Sample sample{"pow", {tensor_of<double>({4}, {0, 0, 0, 2}), tensor_of<double>({4}, {2, 1, 3, 0})}, {}};
  Point point(sample, nullptr);
  const Tensor exponent = autograd::detach(point.inputs[1]);
  const Tensor y = autograd::recorded::call(ops::kPow, {point.inputs[0], exponent});
  auto first = make_local_context();
  first->backward({autograd::recorded::call(ops::kSum, {y})}, options_of(true));
  EXPECT_EQ(values_of<double>(*first->gradients()->find(point.inputs[0])), (Numbers{0, 1, 0, 0}));
  auto second = make_local_context();
  second->backward({autograd::recorded::call(ops::kSum, {*first->gradients()->find(point.inputs[0])})}, {});
  EXPECT_EQ(values_of<double>(*second->gradients()->find(point.inputs[0])), (Numbers{2, 0, 0, 0}));
}

// Float32 beside float64: gradients of gradients have the dtype of their leaf.
TEST(RecordedBackwardTest, PromotedInputsKeepTheirDtype) {
  const Tensor a = tensor_of<float>({2}, {1.5F, -2}), b = tensor_of<double>({2}, {0.5, 3});
  for (const Tensor& leaf : {a, b}) autograd::set_requires_grad(leaf, true);
  for (const char* name : {"mul", "div", "maximum", "mse_loss"}) {
    SCOPED_TRACE(name);
    const Tensor y = autograd::recorded::call(*ops::find_op(name), {a, b});
    auto first = make_local_context(), second = make_local_context();
    first->backward({autograd::recorded::call(ops::kSum, {autograd::recorded::mul(y, y)})}, options_of(true));
    Tensor sum;
    const auto gradients = first->gradients();
    for (const auto& entry : gradients->entries) {
      const Tensor one =
          autograd::recorded::call(ops::kSum, {autograd::recorded::cast(entry.gradient, Dtype::kFloat64)});
      sum = sum ? autograd::recorded::add(sum, one) : one;
    }
    second->backward({sum}, {});
    EXPECT_EQ(second->gradients()->find(a)->dtype(), Dtype::kFloat32);
    EXPECT_EQ(second->gradients()->find(b)->dtype(), Dtype::kFloat64);
  }
}

}  // namespace
}  // namespace distag::testing
