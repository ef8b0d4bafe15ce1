// The engine as passes across workers use it: sources, recvs, host code that runs elsewhere.
#include "autograd/graph_task.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "autograd/autograd.h"
#include "base/error.h"
#include "dautograd/nodes.h"
#include "ops/builtins.h"
#include "support/leaves.h"

namespace distag {
namespace {

using autograd::Bits;
using autograd::Edge;
using autograd::GraphTask;
using testing::scalar_leaf;

Tensor number(double value) { return Tensor::scalar(Dtype::kFloat64, value); }

Tensor apply(const ops::Op& op, std::vector<Tensor> inputs) { return autograd::apply(op, inputs, {})[0]; }

std::shared_ptr<RecvNode> receive(std::vector<Tensor> tensors) {
  auto recv = std::make_shared<RecvNode>(PairInfo{{1, 1}, {2, 2}, 2, 1, "call \"f\" on \"b\"", true},
                                         static_cast<uint32_t>(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) autograd::set_history(tensors[i], {recv, static_cast<uint32_t>(i)});
  return recv;
}

std::shared_ptr<SendNode> send(std::vector<Tensor> tensors) {
  std::vector<Edge> next;
  std::vector<SendNode::Slot> slots;
  for (const Tensor& tensor : tensors) {
    next.push_back(autograd::gradient_edge(tensor));
    slots.push_back({tensor.shape(), tensor.dtype()});
  }
  return std::make_shared<SendNode>(PairInfo{}, std::move(next), std::move(slots));
}

void accept(const autograd::Node&) {}

TEST(GraphTaskTest, TellsEachSlotOfARecvOnceAndSendsItsGradientsTogether) {
  GraphTask task(accept);
  Tensor a = number(2), b = number(3), c = number(4);
  auto recv = receive({a, b, c});
  const Tensor first = apply(ops::kMul, {a, a});
  const Tensor second = apply(ops::kMul, {a, c});
  task.walk().expand(std::vector<Edge>{autograd::gradient_edge(first)});
  task.walk().run();
  auto reached = task.walk().take_reached();
  ASSERT_EQ(reached.size(), 1u);
  EXPECT_EQ(reached[0].slots, (Bits{true, false, false}));
  task.walk().expand(std::vector<Edge>{autograd::gradient_edge(second)});
  task.walk().run();
  reached = task.walk().take_reached();
  ASSERT_EQ(reached.size(), 1u);
  EXPECT_EQ(reached[0].slots, (Bits{false, false, true}));

  task.deliver(autograd::gradient_edge(first), number(1));
  EXPECT_TRUE(task.run({}));
  EXPECT_TRUE(task.take_leaving().empty()) << "the other use of a is still to come";
  EXPECT_FALSE(task.is_finished());
  task.deliver(autograd::gradient_edge(second), number(1));
  EXPECT_TRUE(task.run({}));
  const auto leaving = task.take_leaving();
  ASSERT_EQ(leaving.size(), 1u);
  EXPECT_EQ(leaving[0].live, (Bits{true, false, true}));
  EXPECT_EQ(leaving[0].gradients[0].item(), 4 + 4);
  EXPECT_EQ(leaving[0].gradients[1].item(), 2);
  EXPECT_TRUE(task.is_finished());
}

TEST(GraphTaskTest, ASourceIsWalkedSlotBySlotAndFiresOnce) {
  GraphTask task(accept);
  const Tensor x = scalar_leaf(5), y = scalar_leaf(6);
  auto source = send({apply(ops::kMul, {x, x}), y, x});
  task.walk().add_source(source, {true, false, false});
  task.walk().run();
  const size_t before = task.walk().visits().size();
  task.walk().add_source(source, {true, false, true});
  task.walk().run();
  EXPECT_EQ(task.walk().visits().size(), before) << "x was there already, y is not live";
  EXPECT_EQ(task.waiting_sources().size(), 1u);
  task.deliver_source(*source, {number(1), Tensor(), number(100)});
  task.run({});
  EXPECT_TRUE(task.is_finished());
  const auto gradients = task.take_gradients();
  ASSERT_EQ(gradients.size(), 1u);
  EXPECT_EQ(gradients[0].gradient.item(), 110);
  try {
    task.deliver_source(*source, {number(1), Tensor(), number(1)});
    FAIL() << "it came twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kProtocol);
  }
}

TEST(GraphTaskTest, UndefinedGradientsAreArrivalsToo) {
  GraphTask task(accept);
  Tensor a = number(2);
  auto recv = receive({a});
  const Tensor x = scalar_leaf(3);
  auto source = send({apply(ops::kMul, {a, x}), a});
  task.walk().add_source(source, {true, true});
  task.walk().run();
  task.deliver_source(*source, {Tensor(), Tensor()});
  task.run({});
  EXPECT_TRUE(task.is_finished());
  EXPECT_TRUE(task.take_gradients().empty());
  const auto leaving = task.take_leaving();
  ASSERT_EQ(leaving.size(), 1u);
  EXPECT_FALSE(leaving[0].gradients[0]);
}

TEST(GraphTaskTest, HostCodeIsHandedOutAndGoesOnWhenItIsDone) {
  GraphTask task(accept);
  const Tensor x = scalar_leaf(3);
  autograd::CustomOp op;
  op.name = "host";
  op.forward = [](std::span<const Tensor> inputs, size_t) { return Tensors{inputs[0].clone()}; };
  op.backward = [](Tensors gradients, size_t) { return gradients; };
  const Tensor y = autograd::apply_custom(op, std::vector<Tensor>{x}, 1)[0];
  task.walk().expand(std::vector<Edge>{autograd::gradient_edge(y)});
  task.walk().run();
  task.deliver(autograd::gradient_edge(y), number(7));
  EXPECT_TRUE(task.run({}));
  auto steps = task.take_host_steps();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_FALSE(task.is_finished());
  task.finish_host_step(steps[0], steps[0].run());
  EXPECT_TRUE(task.run({}));
  EXPECT_TRUE(task.is_finished());
  EXPECT_EQ(task.take_gradients()[0].gradient.item(), 7);
}

TEST(GraphTaskTest, LimitsLeaveTheRestForLater) {
  GraphTask task(accept);
  Tensor y = scalar_leaf(1);
  for (int i = 0; i < 10; ++i) y = apply(ops::kNeg, {y});
  task.walk().expand(std::vector<Edge>{autograd::gradient_edge(y)});
  EXPECT_FALSE(task.walk().run(4));
  EXPECT_TRUE(task.walk().run());
  task.deliver(autograd::gradient_edge(y), number(1));
  EXPECT_FALSE(task.run({.max_nodes = 4}));
  EXPECT_TRUE(task.run({.max_nodes = 100}));
  EXPECT_EQ(task.take_gradients()[0].gradient.item(), 1);

  GraphTask large(accept);
  Tensor big = Tensor::empty(Dtype::kFloat64, {10000});
  autograd::set_requires_grad(big, true);
  const Tensor sum = apply(ops::kSum, {big});
  large.walk().expand(std::vector<Edge>{autograd::gradient_edge(sum)});
  large.walk().run();
  large.deliver(autograd::gradient_edge(sum), number(1));
  EXPECT_FALSE(large.run({.max_nodes = 100})) << "80 kB are not cheap";
  EXPECT_FALSE(large.run({.max_nodes = 100, .max_bytes = 80007}));
  EXPECT_FALSE(large.run({.max_nodes = 100, .max_bytes = 80008})) << "the leaf copies what it gets";
  EXPECT_FALSE(large.run({.max_nodes = 100, .max_bytes = 79999}));
  EXPECT_TRUE(large.run({.max_nodes = 100, .max_bytes = 80000}));
  EXPECT_TRUE(large.is_finished());
}

TEST(GraphTaskTest, AProductOfMatricesIsNoPassOverMemory) {
  GraphTask task(accept);
  Tensor matrix = Tensor::empty(Dtype::kFloat64, {100, 100});
  std::fill_n(matrix.mutable_data_as<double>(), matrix.count(), 1.0);
  autograd::set_requires_grad(matrix, true);
  const Tensor root = apply(ops::kMatmul, {matrix, matrix});
  task.walk().expand(std::vector<Edge>{autograd::gradient_edge(root)});
  task.walk().run();
  task.deliver(autograd::gradient_edge(root), matrix);
  EXPECT_FALSE(task.run({.max_nodes = 100, .max_bytes = size_t{1} << 40}));
  EXPECT_TRUE(task.run({}));
}

TEST(GraphTaskTest, AWalkEndsAtANodeThatWasFreed) {
  const Tensor x = scalar_leaf(1);
  const Tensor y = apply(ops::kTanh, {apply(ops::kExp, {x})});
  GraphTask first(accept);
  first.walk().expand(std::vector<Edge>{autograd::gradient_edge(y)});
  first.walk().run();
  first.walk().free_saved();
  GraphTask second(accept);
  try {
    second.walk().expand(std::vector<Edge>{autograd::gradient_edge(y)});
    FAIL() << "it was freed";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kGraphFreed);
    EXPECT_NE(error.message().find("\"tanh\""), std::string::npos) << error.message();
  }
  // The task that walked before holds what it needs.
  first.deliver(autograd::gradient_edge(y), number(1));
  EXPECT_TRUE(first.run({}));
  EXPECT_EQ(first.take_gradients().size(), 1u);
}

// The products of kMatmul: x comes from another worker, w and b are leaves.
TEST(GraphTaskTest, GradientsOfLeavesWaitUntilThoseOfOthersHaveLeft) {
  const auto matrix = [](double value) {
    Tensor tensor = Tensor::empty(Dtype::kFloat64, {100, 100});
    std::fill_n(tensor.mutable_data_as<double>(), tensor.count(), value);
    return tensor;
  };
  Tensor x = matrix(2);
  Tensor weight = matrix(3);
  autograd::set_requires_grad(weight, true);
  auto recv = receive({x});
  const Tensor inner = apply(ops::kMatmul, {x, weight});
  const Tensor root = apply(ops::kMatmul, {inner, weight});
  GraphTask task(accept);
  task.walk().expand(std::vector<Edge>{autograd::gradient_edge(root)});
  task.walk().run();
  task.deliver(autograd::gradient_edge(root), matrix(1));
  EXPECT_TRUE(task.run({}));
  const auto leaving = task.take_leaving();
  ASSERT_EQ(leaving.size(), 1u);
  EXPECT_EQ(leaving[0].gradients[0].data_as<double>()[0], 300.0 * 300.0);
  EXPECT_TRUE(task.has_put_off());
  EXPECT_FALSE(task.is_finished());
  EXPECT_TRUE(task.take_gradients().empty());

  task.take_up();
  EXPECT_TRUE(task.run({}));
  EXPECT_FALSE(task.has_put_off());
  EXPECT_TRUE(task.is_finished());
  const auto gradients = task.take_gradients();
  ASSERT_EQ(gradients.size(), 1u);
  // inner^T g, and x^T (g weight^T).
  EXPECT_EQ(gradients[0].gradient.data_as<double>()[0], 600.0 * 100 + 2 * 300.0 * 100);
  EXPECT_TRUE(task.take_leaving().empty()) << "it has gone";
}

// No other worker waits: the order of a pass in one process stays.
TEST(GraphTaskTest, NothingIsPutOffWhereNothingLeaves) {
  Tensor weight = Tensor::empty(Dtype::kFloat64, {100, 100});
  std::fill_n(weight.mutable_data_as<double>(), weight.count(), 1.0);
  autograd::set_requires_grad(weight, true);
  const Tensor root = apply(ops::kMatmul, {apply(ops::kNeg, {weight}), weight});
  GraphTask task(accept);
  task.walk().expand(std::vector<Edge>{autograd::gradient_edge(root)});
  task.walk().run();
  task.deliver(autograd::gradient_edge(root), root);
  EXPECT_TRUE(task.run({}));
  EXPECT_FALSE(task.has_put_off());
  EXPECT_TRUE(task.is_finished());
}

}  // namespace
}  // namespace distag
