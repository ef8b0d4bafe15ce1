// The hostile test of ops as calls of another worker: each is answered, with a result or an error, each backward pass
// ends, and the worker lives.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"
#include "ops/hostile.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

using testing::HostileArguments;

// Null stands for an input that is left out; the attributes come last.
Values call_arguments(const Tensors& inputs, const ops::Attributes& attributes) {
  Values args;
  for (const Tensor& input : inputs) {
    if (input && is_floating(input.dtype())) autograd::set_requires_grad(input, true);
    args.push_back(input ? Value(input) : Value());
  }
  args.push_back(Value::map(attributes));
  return args;
}

// A call from worker 0 to 1 whose result stays there: a gradient that reaches it has been nowhere, and keeps its
// strides.
Value stay(SimWorkerGroup& group, const std::string& function, Values args, const Id& context) {
  CallRequest request;
  request.to = SimWorkerGroup::name(1);
  request.function = function;
  request.args = std::move(args);
  request.context = context;
  return Value(std::shared_ptr<ExternalValue>(group.worker(0).rrefs().remote(std::move(request))));
}

// Sums over the outputs, whose gradients come with strides of 0.
Tensors roots_of(const Value& result) {
  Tensors roots;
  result.for_each_tensor([&roots](const Tensor& output) {
    if (autograd::requires_grad(output))
      roots.push_back(autograd::apply(ops::kSum, std::vector<Tensor>{output}, {})[0]);
  });
  return roots;
}

// Calls and passes that came to a result.
struct Outcome {
  int calls = 0;
  int passes = 0;
};

void call_once(SimWorkerGroup& group, const ops::Op& op, uint64_t seed, Outcome& outcome) {
  HostileArguments generator(seed);
  const Tensors inputs = generator.inputs(op.arguments);
  const ops::Attributes attributes = generator.attributes(op.arguments);
  try {
    const auto context = group.worker(0).dautograd().create_context();
    const Values args = call_arguments(inputs, attributes);
    const Tensors roots = roots_of(group.call(0, 1, op.name, args, context->global_id()));
    ++outcome.calls;
    if (roots.empty()) return;
    context->backward(roots, {});
    const Value sum = group.call(0, 1, "sum", {stay(group, op.name, args, context->global_id())}, context->global_id());
    context->backward({sum.as_tensor()}, {});
    ++outcome.passes;
  } catch (const Error& error) {
    for (const Status status : {Status::kDeadline, Status::kDisconnected, Status::kInternal}) {
      EXPECT_NE(error.status(), status) << error.message();
    }
  }
}

TEST(HostileCallsTest, EachIsAnsweredAndTheWorkerLives) {
  SimWorkerGroup group(1, {});
  group.start();
  Outcome outcome;
  for (const ops::Op* op : ops::builtins()) {
    SCOPED_TRACE(op->name);
    for (uint64_t seed = 0; seed < 150; ++seed) call_once(group, *op, seed, outcome);
    const Tensor two = Tensor::scalar(Dtype::kFloat32, 2.0);
    ASSERT_EQ(group.call(0, 1, "neg", {Value(two)}).as_tensor().item(), -2.0) << "after calls of " << op->name;
  }
  EXPECT_GT(outcome.calls, 1000);
  EXPECT_GT(outcome.passes, 500);
  for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
}

// The gradient of a sum has strides of 0, and fits no matrix of another size.
TEST(HostileCallsTest, GradientsOfAProductOfNothing) {
  SimWorkerGroup group(1, {});
  group.start();
  for (const auto& [a, b] : {std::pair<Dims, Dims>{{2, 3, 0}, {0, 4}}, {{2, 3, 4}, {4, 0}}, {{0, 3, 4}, {4, 2}}}) {
    const auto context = group.worker(0).dautograd().create_context();
    Tensor left = Tensor::empty(Dtype::kFloat32, a);
    Tensor right = Tensor::empty(Dtype::kFloat32, b);
    if (left.count() > 0) std::fill_n(left.mutable_data_as<float>(), left.count(), 1.0F);
    if (right.count() > 0) std::fill_n(right.mutable_data_as<float>(), right.count(), 1.0F);
    autograd::set_requires_grad(left, true);
    autograd::set_requires_grad(right, true);
    const Value y = stay(group, "matmul", {Value(left), Value(right)}, context->global_id());
    const Value sum = group.call(0, 1, "sum", {y}, context->global_id());
    context->backward({sum.as_tensor()}, {});
    const auto gradients = context->gradients();
    for (const Tensor& input : {left, right}) {
      const Tensor* gradient = gradients->find(input);
      ASSERT_NE(gradient, nullptr);
      ASSERT_EQ(gradient->shape(), input.shape());
      for (int64_t i = 0; i < gradient->count(); ++i) EXPECT_EQ(gradient->contiguous().data_as<float>()[i], 0.0F);
    }
  }
}

}  // namespace
}  // namespace distag::sim
