// Every op that has a backward against central finite differences in float64.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "base/fork_gate.h"
#include "ops/op.h"
#include "ops/samples.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

bool is_differentiable(const Tensor& tensor) { return tensor && is_floating(tensor.dtype()); }

// Weights of the outputs, so that each counts differently in the one number that is differentiated. Indices have none.
Tensor weights_like(const Tensor& output) {
  if (!is_differentiable(output)) return Tensor();
  Tensor weights = Tensor::empty(output.dtype(), output.shape());
  for (int64_t i = 0; i < weights.count(); ++i) {
    weights.mutable_data_as<double>()[i] = 0.3 + 0.17 * static_cast<double>((i * 5) % 11);
  }
  return weights;
}

double weighted_sum(const ops::Op& op, const Tensors& inputs, const ops::Attributes& attributes) {
  double sum = 0;
  for (const Tensor& output : op.forward(inputs, attributes, nullptr)) {
    if (!is_differentiable(output)) continue;
    auto values = values_of<double>(output);
    auto weights = values_of<double>(weights_like(output));
    for (size_t i = 0; i < values.size(); ++i) sum += values[i] * weights[i];
  }
  return sum;
}

// The input with element i moved by `step`, in the same layout.
Tensor moved(const Tensor& input, int64_t i, double step) {
  auto values = values_of<double>(input);
  values[static_cast<size_t>(i)] += step;
  Tensor plain = tensor_of<double>(input.shape(), values);
  return input.is_contiguous() ? plain : with_gaps(plain);
}

double difference_quotient(const ops::Op& op, const Sample& sample, size_t input, int64_t i) {
  constexpr double kStep = 1e-5;
  Tensors inputs = sample.inputs;
  inputs[input] = moved(sample.inputs[input], i, kStep);
  double above = weighted_sum(op, inputs, sample.attributes);
  inputs[input] = moved(sample.inputs[input], i, -kStep);
  double below = weighted_sum(op, inputs, sample.attributes);
  return (above - below) / (2 * kStep);
}

ops::Saved recorded(const ops::Op& op, const Sample& sample, uint64_t needed, Tensors& outputs) {
  ops::Saved saved;
  saved.needed = needed;
  ops::check_arguments(op, sample.inputs, sample.attributes);
  outputs = op.forward(sample.inputs, sample.attributes, &saved);
  return saved;
}

Tensors gradients_of(const ops::Op& op, const ops::Saved& saved, const Tensors& outputs) {
  Tensors seeds;
  for (const Tensor& output : outputs) seeds.push_back(weights_like(output));
  Tensors gradients = op.backward(saved, std::move(seeds));
  return gradients;
}

std::string title(const Sample& sample) {
  std::string text = sample.op + "(";
  for (const Tensor& input : sample.inputs) text += describe(input) + " ";
  for (const auto& [name, value] : sample.attributes) text += name + " ";
  return text + ")";
}

TEST(GradientTest, EqualsFiniteDifferences) {
  for (const Sample& sample : gradient_samples()) {
    SCOPED_TRACE(title(sample));
    const ops::Op* op = ops::find_op(sample.op);
    ASSERT_NE(op, nullptr);
    Tensors outputs;
    ops::Saved saved = recorded(*op, sample, ~uint64_t{0}, outputs);
    Tensors gradients = gradients_of(*op, saved, outputs);
    for (size_t input = 0; input < sample.inputs.size(); ++input) {
      if (!is_differentiable(sample.inputs[input])) continue;
      if (((op->constant >> input) & 1) != 0) continue;
      ASSERT_TRUE(gradients[input]) << "no gradient of input " << input;
      ASSERT_EQ(gradients[input].shape(), sample.inputs[input].shape());
      ASSERT_EQ(gradients[input].dtype(), sample.inputs[input].dtype());
      auto values = values_of<double>(gradients[input]);
      for (size_t i = 0; i < values.size(); ++i) {
        double expected = difference_quotient(*op, sample, input, static_cast<int64_t>(i));
        ASSERT_NEAR(values[i], expected, 1e-7 + 1e-6 * std::fabs(expected)) << "input " << input << " element " << i;
      }
    }
  }
}

// retain_graph: a second backward of what was saved sees the same values, whatever the first did to its buffers.
TEST(GradientTest, IsTheSameTheSecondTime) {
  for (const Sample& sample : gradient_samples()) {
    SCOPED_TRACE(title(sample));
    const ops::Op* op = ops::find_op(sample.op);
    Tensors outputs;
    ops::Saved saved = recorded(*op, sample, ~uint64_t{0}, outputs);
    Tensors first = gradients_of(*op, saved, outputs);
    Tensors second = gradients_of(*op, saved, outputs);
    for (size_t i = 0; i < first.size(); ++i) {
      ASSERT_EQ(bool(first[i]), bool(second[i]));
      if (!first[i]) continue;
      ASSERT_EQ(values_of<double>(first[i]), values_of<double>(second[i]));
    }
  }
}

TEST(GradientTest, OfOneInputNeedsNoOther) {
  for (const Sample& sample : gradient_samples()) {
    SCOPED_TRACE(title(sample));
    const ops::Op* op = ops::find_op(sample.op);
    Tensors outputs;
    ops::Saved all = recorded(*op, sample, ~uint64_t{0}, outputs);
    Tensors whole = gradients_of(*op, all, outputs);
    for (size_t input = 0; input < sample.inputs.size(); ++input) {
      if (!is_differentiable(sample.inputs[input]) || !whole[input]) continue;
      ops::Saved one = recorded(*op, sample, uint64_t{1} << input, outputs);
      Tensors gradients = gradients_of(*op, one, outputs);
      ASSERT_TRUE(gradients[input]);
      ASSERT_EQ(values_of<double>(gradients[input]), values_of<double>(whole[input]));
    }
  }
}

TEST(GradientTest, OfNothingIsNothing) {
  for (const Sample& sample : gradient_samples()) {
    SCOPED_TRACE(title(sample));
    const ops::Op* op = ops::find_op(sample.op);
    Tensors outputs;
    ops::Saved saved = recorded(*op, sample, ~uint64_t{0}, outputs);
    for (const Tensor& gradient : op->backward(saved, Tensors(outputs.size()))) EXPECT_FALSE(gradient);
  }
}

// Loops run them, and must not wait for a fork that waits for a product of another thread.
TEST(GradientTest, OpsThatALoopMayRunMakeNoProduct) {
  static std::atomic<bool> has_begun{false};
  ASSERT_EQ(pthread_atfork([] { has_begun = true; }, nullptr, nullptr), 0);
  std::jthread forker;
  std::optional<NoFork> product(std::in_place);
  forker = std::jthread([] {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
  });
  while (!has_begun) std::this_thread::yield();
  auto done = std::async(std::launch::async, [] {
    for (const Sample& sample : gradient_samples()) {
      const ops::Op* op = ops::find_op(sample.op);
      if (!op->is_cheap && !op->is_one_pass) continue;
      Tensors outputs;
      const ops::Saved saved = recorded(*op, sample, ~uint64_t{0}, outputs);
      gradients_of(*op, saved, outputs);
    }
  });
  EXPECT_EQ(done.wait_for(std::chrono::seconds(120)), std::future_status::ready);
  product.reset();
}

TEST(GradientTest, HasASampleForEveryOp) {
  std::set<std::string> sampled;
  for (const Sample& sample : gradient_samples()) sampled.insert(sample.op);
  for (const ops::Op* op : ops::builtins()) {
    if (op->backward != nullptr) {
      EXPECT_TRUE(sampled.count(op->name) == 1) << op->name << " needs a sample in samples.cpp";
    }
  }
}

}  // namespace
}  // namespace distag::testing
