// Passes over real threads: workers of one process, each with its loop and its pool.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"
#include "worker/threaded_worker.h"

namespace distag {
namespace {

Tensor leaf(double value, int64_t count = 3) {
  Tensor tensor = Tensor::empty(Dtype::kFloat64, {count});
  for (int64_t i = 0; i < count; ++i) tensor.mutable_data_as<double>()[i] = value;
  autograd::set_requires_grad(tensor, true);
  return tensor;
}

Tensor apply(const ops::Op& op, std::vector<Tensor> inputs) { return autograd::apply(op, inputs, {})[0]; }

class PassThreadsTest : public ::testing::Test {
 protected:
  void start(int32_t size, bool host_executor = false) {
    static std::atomic<int> groups{0};
    const std::string name = "inproc://passes" + std::to_string(++groups);
    for (int32_t rank = 0; rank < size; ++rank) {
      ThreadedOptions options;
      options.worker.rank = rank;
      options.worker.world_size = size;
      options.worker.name = "w" + std::to_string(rank);
      options.worker.rendezvous = name;
      options.thread_count = 2;
      options.host_executor = host_executor;
      workers_.push_back(std::make_unique<ThreadedWorker>(options));
      register_functions(rank);
    }
    std::vector<std::shared_ptr<Future<Value>>> started;
    for (const auto& worker : workers_) started.push_back(worker->start(120 * kSecond));
    for (const auto& future : started) {
      ASSERT_TRUE(wait(*future, 120 * kSecond));
      future->value();
    }
  }

  void TearDown() override {
    std::vector<std::shared_ptr<Future<ShutdownReport>>> ended;
    for (const auto& worker : workers_) ended.push_back(worker->begin_shutdown(120 * kSecond));
    for (const auto& future : ended) EXPECT_TRUE(wait(*future, 120 * kSecond) && future->value().clean);
    for (const auto& worker : workers_) EXPECT_TRUE(worker->finish(120 * kSecond));
  }

  void register_functions(int32_t rank) {
    Rpc& rpc = workers_[static_cast<size_t>(rank)]->worker().rpc();
    // x -> x * x, by way of the next worker when there is depth left.
    rpc.register_function("power", [this, rank](Invocation& invocation) {
      const int64_t depth = invocation.args()[0].as_int64();
      const Tensor x = invocation.args()[1].as_tensor();
      Tensor y = apply(ops::kMul, {x, x});
      if (depth > 0) y = call(rank, invocation.context(), "power", {Value(depth - 1), Value(y)});
      invocation.set_result(Value(y));
    });
    rpc.register_function("custom", [](Invocation& invocation) {
      autograd::CustomOp op;
      op.name = "same";
      op.forward = [](std::span<const Tensor> inputs, size_t) { return Tensors{inputs[0].clone()}; };
      op.backward = [](Tensors gradients, size_t) { return gradients; };
      const Tensors inputs{invocation.args()[0].as_tensor()};
      invocation.set_result(Value(autograd::apply_custom(std::move(op), inputs, 1)[0]));
    });
  }

  Tensor call(int32_t from, const Id& context, const std::string& function, Values args) {
    CallRequest request;
    request.context = context;
    request.to = "w" + std::to_string((static_cast<size_t>(from) + 1) % workers_.size());
    request.function = function;
    request.args = std::move(args);
    auto answer = workers_[static_cast<size_t>(from)]->worker().rpc().call(std::move(request));
    EXPECT_TRUE(wait(*answer, 120 * kSecond));
    return answer->value().as_tensor();
  }

  Worker& worker(int32_t rank) { return workers_[static_cast<size_t>(rank)]->worker(); }

  std::vector<std::unique_ptr<ThreadedWorker>> workers_;
};

// d/dx of x^(2^(depth + 1)) at 1 is 2^(depth + 1).
TEST_F(PassThreadsTest, ManyThreadsRunForwardsAndPassesAtOnce) {
  start(3);
  std::vector<std::thread> threads;
  for (int32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      const int32_t home = thread % 3;
      for (int64_t step = 0; step < 25; ++step) {
        const auto context = worker(home).dautograd().create_context();
        const int64_t depth = step % 4;
        const Tensor x = leaf(1);
        const Tensor y = call(home, context->global_id(), "power", {Value(depth), Value(x)});
        BackwardOptions options;
        options.mode = step % 2 == 0 ? BackwardMode::kSmart : BackwardMode::kFast;
        context->backward({apply(ops::kSum, {y})}, options);
        const auto gradients = context->gradients();
        const Tensor* gradient = gradients->find(x);
        ASSERT_NE(gradient, nullptr);
        EXPECT_EQ(gradient->data_as<double>()[0], static_cast<double>(int64_t{2} << depth));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(PassThreadsTest, PassesOfOneContextRunSideBySide) {
  start(2);
  const auto context = worker(0).dautograd().create_context();
  const Tensor x = leaf(1, 50000);  // more than a loop takes on by itself
  const Tensor y = call(0, context->global_id(), "power", {Value(int64_t{1}), Value(x)});
  const Tensor loss = apply(ops::kSum, {y});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      BackwardOptions retain;
      retain.retain_graph = true;
      for (int pass = 0; pass < 10; ++pass) context->backward({loss}, retain);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(context->gradients()->find(x)->data_as<double>()[49999], 4 * 40);
}

TEST_F(PassThreadsTest, CancelledPassesLeaveNothing) {
  start(2);
  const Tensor x = leaf(1);
  for (int i = 0; i < 50; ++i) {
    const auto context = worker(0).dautograd().create_context();
    const Tensor y = call(0, context->global_id(), "custom", {Value(x)});
    auto pass = context->backward_async({apply(ops::kSum, {y})}, {});
    if (i % 2 == 0) pass->cancel();
    ASSERT_TRUE(wait(*pass, 120 * kSecond));
    if (pass->error() == nullptr) {
      EXPECT_NE(context->gradients()->find(x), nullptr);
    } else {
      EXPECT_EQ(pass->error()->status(), Status::kCancelled);
    }
  }
}

TEST_F(PassThreadsTest, HandlesMayOutliveTheirWorker) {
  start(2);
  const auto context = worker(0).dautograd().create_context();
  const Tensor y = call(0, context->global_id(), "power", {Value(int64_t{0}), Value(leaf(1))});
  TearDown();
  workers_.clear();
  try {
    context->backward({apply(ops::kSum, {y})}, {});
    ADD_FAILURE() << "the worker has gone";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState) << error.message();
  }
}

}  // namespace
}  // namespace distag
