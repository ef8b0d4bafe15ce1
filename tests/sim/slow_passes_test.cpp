// Passes in which something is slow: a link, a function, a word to the creator; or ends at the worst moment.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"
#include "support/leaves.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

using testing::apply;
using testing::scalar_leaf;

class SlowPassesTest : public ::testing::Test {
 protected:
  explicit SlowPassesTest(uint64_t seed = 1) {
    SimGroupOptions options;
    options.size = 4;
    options.lineage = kNoLineage;
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    for (int32_t rank = 0; rank < 4; ++rank) {
      leaves_.push_back(scalar_leaf(2 + rank));
      register_functions(rank);
    }
    group_->start();
    fast_.mode = BackwardMode::kFast;
    fast_.timeout = 60 * kSecond;
  }

  void register_functions(int32_t rank) {
    Rpc& rpc = group_->worker(rank).rpc();
    rpc.register_function("nothing", [](Invocation&) {});
    // This op keeps nothing of its input for the pass.
    rpc.register_function("double", [](Invocation& invocation) {
      const Tensor x = invocation.args()[0].as_tensor();
      invocation.set_result(Value(apply(ops::kAdd, {x, x})));
    });
    rpc.register_function("times_leaf", [this, rank](Invocation& invocation) {
      const Tensor x = invocation.args()[0].as_tensor();
      invocation.set_result(Value(apply(ops::kMul, {x, leaves_[static_cast<size_t>(rank)]})));
    });
    rpc.register_function("leaf", [this, rank](Invocation& invocation) {
      const Tensor& own = leaves_[static_cast<size_t>(rank)];
      invocation.set_result(Value(apply(ops::kAdd, {own, own})));
    });
    // The backward of this op waits for the gate.
    rpc.register_function("slow", [this](Invocation& invocation) {
      autograd::CustomOp op;
      op.name = "slow";
      op.forward = [](std::span<const Tensor> inputs, size_t) { return Tensors{inputs[0].clone()}; };
      op.backward = [this](Tensors gradients, size_t) {
        wait(*gate_, kForever);
        return gradients;
      };
      const std::vector<Tensor> inputs{invocation.args()[0].as_tensor()};
      invocation.set_result(Value(autograd::apply_custom(std::move(op), inputs, 1)[0]));
    });
    // A rank, a function, and its arguments there.
    rpc.register_function("via", [this, rank](Invocation& invocation) {
      Values rest(invocation.args().begin() + 2, invocation.args().end());
      const auto to = static_cast<int32_t>(invocation.args()[0].as_int64());
      invocation.set_result(
          group_->call(rank, to, invocation.args()[1].as_text(), std::move(rest), invocation.context()));
    });
    rpc.register_function("pass", [this, rank](Invocation& invocation) {
      const auto context = group_->worker(rank).dautograd().find_context(invocation.context());
      context->backward({invocation.args()[0].as_tensor()}, fast_);
    });
  }

  std::shared_ptr<Context> make_context(int32_t rank = 0) { return group_->worker(rank).dautograd().create_context(); }
  std::shared_ptr<Context> find_context(int32_t rank, const Context& context) {
    return group_->worker(rank).dautograd().find_context(context.global_id());
  }
  Tensor call(const Context& context, int32_t to, const std::string& function, Values args) {
    return group_->call(0, to, function, std::move(args), context.global_id()).as_tensor();
  }
  Error error_of(Future<Value>& future) {
    wait(future, kForever);
    return future.error() == nullptr ? Error(Status::kOk, "") : *future.error();
  }
  SimScheduler& scheduler() { return group_->scheduler(); }
  void part(const std::string& a, const std::string& b, Nanos duration) {
    group_->network().part(a, b);
    scheduler().at(scheduler().now() + duration, [this, a, b] { group_->network().join(a, b); });
  }

  std::unique_ptr<SimWorkerGroup> group_;
  std::vector<Tensor> leaves_;  // by rank
  std::shared_ptr<Future<Unit>> gate_ = Future<Unit>::make();
  BackwardOptions fast_;
};

TEST_F(SlowPassesTest, AFastPassGoesOnWhileAGradientIsOnItsWay) {
  const auto context = make_context();
  const Tensor x = scalar_leaf(3);
  const Tensor y = call(*context, 1, "via", {Value(int64_t{2}), Value::text("double"), Value(x)});
  part("w1", "w2", 2 * kSecond);
  context->backward({y}, fast_);
  EXPECT_EQ(context->gradients()->find(x)->item(), 2);
}

TEST_F(SlowPassesTest, AFastPassGoesOnWhileAFunctionRuns) {
  const auto context = make_context();
  const Tensor x = scalar_leaf(3);
  const Tensor y = call(*context, 1, "slow", {Value(x)});
  const auto pass = context->backward_async({y}, fast_);
  scheduler().run_for(10 * kSecond);
  ASSERT_FALSE(pass->is_done()) << pass->error()->message();
  gate_->complete(Unit{});
  EXPECT_EQ(error_of(*pass).status(), Status::kOk);
  EXPECT_EQ(context->gradients()->find(x)->item(), 1);
}

TEST_F(SlowPassesTest, APassEndsBeforeItsContextThatNobodyHolds) {
  auto context = make_context();
  const Tensor y = call(*context, 1, "slow", {Value(scalar_leaf(3))});
  const auto pass = context->backward_async({y}, {});
  scheduler().run_for(kSecond);
  context.reset();
  scheduler().run_for(kSecond);
  EXPECT_FALSE(pass->is_done());
  gate_->complete(Unit{});
  EXPECT_EQ(error_of(*pass).status(), Status::kOk);
}

// Neither the creator nor the initiator has heard that w3 takes part; w1, which sends it a gradient, says so.
TEST_F(SlowPassesTest, AFastPassWaitsForAWorkerThatOnlyAnotherKnows) {
  const auto context = make_context();
  for (int32_t rank = 0; rank < 4; ++rank) {
    for (int32_t to = 0; to < 4; ++to) group_->call(rank, to, "nothing", {});
  }
  group_->worker(1).rpc().register_function("forward", [this](Invocation& invocation) {
    const Tensor x = apply(ops::kAdd, {leaves_[1], leaves_[1]});
    const Value y = group_->call(1, 3, "times_leaf", {Value(x)}, invocation.context());
    group_->call(1, 2, "pass", {y}, invocation.context());
  });
  for (const std::string creator_or_initiator : {"w0", "w2"}) part("w3", creator_or_initiator, kSecond);
  group_->call(0, 1, "forward", {}, context->global_id());
  EXPECT_EQ(find_context(1, *context)->gradients()->find(leaves_[1])->item(), 10);
  const auto gradients = find_context(3, *context)->gradients();
  const Tensor* there = gradients->find(leaves_[3]);
  ASSERT_NE(there, nullptr);
  EXPECT_EQ(there->item(), 6);
}

// The initiator and the last worker of a chain have lost each other. A FAST pass finds out when it gets there: by the
// DONE of the worker between them or, when that waits for the lost one, by its answer to a probe.
TEST_F(SlowPassesTest, AFastPassNamesWhoIsLostToTheInitiatorAlone) {
  Tensor root;
  group_->worker(0).rpc().register_function("forward", [this, &root](Invocation& invocation) {
    Values args{Value(int64_t{2}), invocation.args()[0]};
    if (args[1].as_text() == "times_leaf") args.emplace_back(scalar_leaf(1));
    root = group_->call(0, 1, "via", std::move(args), invocation.context()).as_tensor();
  });
  std::vector<std::shared_ptr<Context>> contexts;
  std::vector<Tensor> roots;
  for (const char* function : {"leaf", "times_leaf"}) {
    contexts.push_back(make_context(1));
    group_->call(1, 0, "forward", {Value::text(function)}, contexts.back()->global_id());
    roots.push_back(root);
  }
  group_->call(0, 2, "nothing", {});
  group_->network().part("w0", "w2");
  scheduler().run_for(20 * kSecond);
  const Nanos longest[] = {50 * kMillisecond, kSecond};
  for (size_t i = 0; i < 2; ++i) {
    const auto pass = find_context(0, *contexts[i])->backward_async({roots[i]}, fast_);
    ASSERT_TRUE(scheduler().run_until([&pass] { return pass->is_done(); }, longest[i])) << i;
    EXPECT_EQ(error_of(*pass).status(), Status::kDisconnected) << error_of(*pass).message();
    EXPECT_NE(error_of(*pass).message().find("w2"), std::string::npos) << error_of(*pass).message();
  }
}

// w2 searches on for a pass when it loses the initiator: w1, which asked it and hears both, has to know.
TEST_F(SlowPassesTest, ASearchEndsThoughOneBelowLosesTheInitiator) {
  const auto context = make_context();
  const Tensor y = call(
      *context, 1, "via",
      {Value(int64_t{2}), Value::text("via"), Value(int64_t{3}), Value::text("times_leaf"), Value(scalar_leaf(1))});
  group_->call(0, 2, "nothing", {});
  part("w0", "w2", 20 * kSecond);
  scheduler().run_for(4 * kSecond);
  part("w2", "w3", 4 * kSecond);
  const auto pass = context->backward_async({y}, {});
  ASSERT_TRUE(scheduler().run_until([&pass] { return pass->is_done(); }, 10 * kSecond));
  EXPECT_EQ(error_of(*pass).status(), Status::kDisconnected) << error_of(*pass).message();
  EXPECT_NE(error_of(*pass).message().find("w2"), std::string::npos) << error_of(*pass).message();
}

// The graph that an earlier pass has freed is no part of the next one, though nothing of it has to be kept for that.
TEST_F(SlowPassesTest, ASecondFastPassOverAFreedGraphSaysSo) {
  const auto context = make_context();
  const Tensor x = scalar_leaf(3);
  const Tensor y = call(*context, 1, "double", {Value(x)});
  context->backward({y}, fast_);
  const auto pass = context->backward_async({y}, fast_);
  ASSERT_TRUE(scheduler().run_until([&pass] { return pass->is_done(); }, 5 * kSecond));
  EXPECT_EQ(error_of(*pass).status(), Status::kGraphFreed) << error_of(*pass).message();
  EXPECT_EQ(context->gradients()->find(x)->item(), 2);
}

// A cancel that the caller has made holds, though the last DONE comes before it.
TEST(CancelTest, IsKeptAtAnyMomentOfAPass) {
  size_t cancelled = 0;
  for (size_t run = 0; run < 200; ++run) {
    const size_t moment = run % 20;
    SimWorkerGroup group(1 + run / 20, SimGroupOptions());
    group.start();
    const auto context = group.worker(0).dautograd().create_context();
    const Tensor x = scalar_leaf(3);
    const Tensor y = group.call(0, 1, "add", {Value(x), Value(x)}, context->global_id()).as_tensor();
    const auto pass = context->backward_async({y}, {});
    for (size_t step = 0; step < moment; ++step) group.scheduler().step();
    group.loop(0).freeze();
    group.scheduler().run_for(20 * kMillisecond);
    pass->cancel();
    group.loop(0).thaw();
    group.scheduler().run_for(kSecond);
    const bool is_cancelled = pass->error() != nullptr;
    EXPECT_EQ(context->gradients()->entries.empty(), is_cancelled) << moment;
    cancelled += is_cancelled;
  }
  EXPECT_GT(cancelled, 20u);
  EXPECT_LT(cancelled, 180u);
}

}  // namespace
}  // namespace distag::sim
