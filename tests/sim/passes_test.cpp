// Contexts and passes across workers: counts, ends, failures, and the messages for people.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"
#include "support/expect.h"
#include "support/leaves.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

using testing::apply;
using testing::scalar_leaf;

Tensor custom(const std::string& name, const Tensor& x, std::function<Tensors(Tensors)> backward) {
  autograd::CustomOp op;
  op.name = name;
  op.forward = [](std::span<const Tensor> inputs, size_t) { return Tensors{inputs[0].clone()}; };
  op.backward = [backward](Tensors gradients, size_t) { return backward(std::move(gradients)); };
  return autograd::apply_custom(std::move(op), std::vector<Tensor>{x}, 1)[0];
}

using testing::error_of;

bool contains(const Error& error, const std::string& text) { return error.message().find(text) != std::string::npos; }

// Three workers with functions to call.
class PassesTest : public ::testing::Test {
 protected:
  void make(int32_t size = 3, uint64_t seed = 1) {
    SimGroupOptions options;
    options.size = size;
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    for (int32_t rank = 0; rank < size; ++rank) register_functions(rank);
    group_->start();
  }

  void register_functions(int32_t rank) {
    Rpc& rpc = group_->worker(rank).rpc();
    rpc.register_function("nothing", [](Invocation&) {});
    rpc.register_function("square", [](Invocation& invocation) {
      const Tensor x = invocation.args()[0].as_tensor();
      invocation.set_result(Value(apply(ops::kMul, {x, x})));
    });
    // Calls the next worker: rank, then the arguments of "add" there.
    rpc.register_function("hand_on", [this, rank](Invocation& invocation) {
      Values rest(invocation.args().begin() + 1, invocation.args().end());
      const auto to = static_cast<int32_t>(invocation.args()[0].as_int64());
      invocation.set_result(group_->call(rank, to, "add", std::move(rest), invocation.context()));
    });
    rpc.register_function("boom", [](Invocation& invocation) {
      invocation.set_result(Value(custom("boom", invocation.args()[0].as_tensor(), [](Tensors) -> Tensors {
        throw Error(static_cast<Status>(1042), "host says no");
      })));
    });
  }

  std::shared_ptr<Context> make_context(int32_t rank = 0) { return group_->worker(rank).dautograd().create_context(); }
  std::shared_ptr<Context> find_context(int32_t rank, const Context& context) {
    return group_->worker(rank).dautograd().find_context(context.global_id());
  }
  Tensor call(const Context& context, int32_t to, const std::string& function, Values args) {
    return group_->call(0, to, function, std::move(args), context.global_id()).as_tensor();
  }
  DautogradStats stats(int32_t rank) { return group_->worker(rank).stats().dautograd; }
  void settle() { group_->scheduler().run_for(kSecond); }

  void expect_counts(int32_t rank, const Context& context, uint32_t sends, uint32_t recvs, std::vector<int32_t> known) {
    const auto there = find_context(rank, context);
    const ContextInfo info = there->info();
    EXPECT_EQ(info.send_count, sends) << "w" << rank;
    EXPECT_EQ(info.recv_count, recvs) << "w" << rank;
    EXPECT_EQ(info.known_count, known.size()) << "w" << rank;
    EXPECT_EQ(there->known_ranks(), known) << "w" << rank;
  }

  std::unique_ptr<SimWorkerGroup> group_;
};

// ---- counts, as the peer has them ----

TEST_F(PassesTest, ACallOfAnOpHasAPairEachWay) {
  make();
  const auto context = make_context();
  call(*context, 1, "add", {Value(scalar_leaf(1)), Value(scalar_leaf(2))});
  expect_counts(0, *context, 1, 1, {1});
  expect_counts(1, *context, 1, 1, {0});
}

TEST_F(PassesTest, ACallWithinACallHasPairsOnBothHops) {
  make();
  const auto context = make_context();
  call(*context, 1, "hand_on", {Value(int64_t{2}), Value(scalar_leaf(1)), Value(scalar_leaf(2))});
  expect_counts(0, *context, 1, 1, {1});
  expect_counts(1, *context, 2, 2, {0, 2});
  expect_counts(2, *context, 1, 1, {1});
}

TEST_F(PassesTest, ACallBackToTheCallerCountsOnBoth) {
  make();
  const auto context = make_context();
  call(*context, 1, "hand_on", {Value(int64_t{0}), Value(scalar_leaf(1)), Value(scalar_leaf(2))});
  expect_counts(0, *context, 2, 2, {1});
  expect_counts(1, *context, 2, 2, {0});
}

TEST_F(PassesTest, ACallToItselfHasBothHalves) {
  make();
  const auto context = make_context();
  call(*context, 0, "add", {Value(scalar_leaf(1)), Value(scalar_leaf(2))});
  expect_counts(0, *context, 2, 2, {0});
}

TEST_F(PassesTest, AFunctionWithoutGradientsMakesTheContextKnownAndNothingElse) {
  make();
  const auto context = make_context();
  group_->call(0, 1, "nothing", {}, context->global_id());
  expect_counts(0, *context, 0, 0, {1});
  EXPECT_EQ(find_context(1, *context)->info().send_count, 0u);
  EXPECT_EQ(find_context(1, *context)->id(), context->id());
  EXPECT_EQ(context->id() >> 48, 0u);
}

// ---- the end of a context ----

TEST_F(PassesTest, ReleasingTheContextEndsItOnEveryWorkerItReached) {
  make();
  auto context = make_context();
  call(*context, 1, "hand_on", {Value(int64_t{2}), Value(scalar_leaf(1)), Value(scalar_leaf(2))});
  const auto elsewhere = find_context(2, *context);
  const auto at_home = find_context(0, *context);
  context.reset();
  settle();
  for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(stats(rank).contexts, 0u);
  for (const auto& handle : {elsewhere, at_home}) {
    EXPECT_EQ(error_of([&] { handle->info(); }).status(), Status::kInvalidState);
    EXPECT_EQ(error_of([&] { handle->gradients(); }).status(), Status::kInvalidState);
    EXPECT_EQ(error_of([&] { handle->known_ranks(); }).status(), Status::kInvalidState);
    EXPECT_EQ(error_of([&] { handle->backward({scalar_leaf(1)}, {}); }).status(), Status::kInvalidState);
    const Error call_error = error_of([&] { group_->call(0, 1, "nothing", {}, handle->global_id()); });
    EXPECT_EQ(call_error.status(), Status::kInvalidState) << call_error.message();
  }
}

TEST_F(PassesTest, AContextLastsAsLongAsItsCalls) {
  make();
  auto gate = Future<Unit>::make();
  group_->worker(1).rpc().register_function("wait", [gate](Invocation&) { wait(*gate, kForever); });
  auto context = make_context();
  CallRequest request;
  request.context = context->global_id();
  request.to = "w1";
  request.function = "wait";
  auto answer = group_->worker(0).rpc().call(std::move(request));
  group_->scheduler().run_for(10 * kMillisecond);
  context.reset();
  settle();
  EXPECT_EQ(stats(0).contexts, 1u);
  EXPECT_EQ(stats(1).contexts, 1u);
  gate->complete(Unit{});
  wait(*answer, kForever);
  EXPECT_EQ(answer->error(), nullptr);
  settle();
  EXPECT_EQ(stats(0).contexts, 0u);
  EXPECT_EQ(stats(1).contexts, 0u);
}

TEST_F(PassesTest, ReleaseCancelsTheCallsThatOthersMade) {
  make();
  auto gate = Future<Unit>::make();
  std::shared_ptr<Future<Value>> left_open;
  group_->worker(2).rpc().register_function("wait", [gate](Invocation& invocation) {
    wait(*gate, kForever);
    EXPECT_TRUE(invocation.is_cancelled());
  });
  group_->worker(1).rpc().register_function("leave_open", [this, &left_open](Invocation& invocation) {
    CallRequest request;
    request.context = invocation.context();
    request.to = "w2";
    request.function = "wait";
    left_open = group_->worker(1).rpc().call(std::move(request));
  });
  auto context = make_context();
  group_->call(0, 1, "leave_open", {}, context->global_id());
  settle();
  EXPECT_FALSE(left_open->is_done());
  context.reset();
  settle();
  ASSERT_TRUE(left_open->is_done());
  EXPECT_EQ(left_open->error()->status(), Status::kCancelled) << left_open->error()->message();
  gate->complete(Unit{});
  settle();
  for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(stats(rank).contexts, 0u);
}

TEST_F(PassesTest, AWorkerHoldsSoManyContextsOfACreatorAndNoMore) {
  make(2);
  std::vector<std::shared_ptr<Context>> contexts;
  for (int i = 0; i < 65536; ++i) {
    contexts.push_back(make_context());
    group_->call(0, 1, "nothing", {}, contexts.back()->global_id());
  }
  const auto more = make_context();
  const Error error = error_of([&] { group_->call(0, 1, "nothing", {}, more->global_id()); });
  EXPECT_EQ(error.status(), Status::kOverloaded) << error.message();
  EXPECT_TRUE(contains(error, "65536")) << error.message();
  contexts.pop_back();
  settle();
  group_->call(0, 1, "nothing", {}, more->global_id());
}

TEST_F(PassesTest, WhoLosesTheCreatorLosesItsContexts) {
  make();
  const auto context = make_context();
  call(*context, 1, "square", {Value(scalar_leaf(3))});
  const auto elsewhere = find_context(1, *context);
  group_->call(1, 0, "nothing", {});
  group_->kill(0);
  group_->scheduler().run_for(20 * kSecond);
  EXPECT_EQ(stats(1).contexts, 0u);
  const Error error = error_of([&] { elsewhere->gradients(); });
  EXPECT_EQ(error.status(), Status::kDisconnected);
  EXPECT_TRUE(contains(error, "w0")) << error.message();
}

TEST_F(PassesTest, AContextNeedsAStartedWorkerAndTheRightOne) {
  SimGroupOptions options;
  options.size = 2;
  group_ = std::make_unique<SimWorkerGroup>(1, options);
  EXPECT_EQ(error_of([&] { make_context(); }).status(), Status::kInvalidState);
  group_->start();
  const auto context = make_context(0);
  EXPECT_TRUE(group_->worker(0).dautograd().is_mine(*context));
  EXPECT_FALSE(group_->worker(1).dautograd().is_mine(*context));
  EXPECT_FALSE(group_->worker(1).dautograd().is_mine(*make_local_context()));
  EXPECT_EQ(group_->worker(0).dautograd().find_context({}), nullptr);
}

// ---- passes ----

TEST_F(PassesTest, AThousandRetainedPassesAddUp) {
  make(2);
  const auto context = make_context();
  const Tensor x = scalar_leaf(3);
  const Tensor loss = call(*context, 1, "square", {Value(x)});
  BackwardOptions retain;
  retain.retain_graph = true;
  for (int pass = 0; pass < 1000; ++pass) context->backward({loss}, retain);
  EXPECT_EQ(context->gradients()->find(x)->item(), 6000);
  EXPECT_EQ(context->info().pass_count, 0u);
  context->backward({loss}, {});
  EXPECT_EQ(context->info().send_count, 0u);
  settle();
  EXPECT_EQ(find_context(1, *context)->info().send_count, 0u);
  const Error error = error_of([&] { context->backward({loss}, {}); });
  EXPECT_EQ(error.status(), Status::kGraphFreed);
  EXPECT_TRUE(contains(error, "w1")) << error.message();
  EXPECT_EQ(context->gradients()->find(x)->item(), 6006);
}

TEST_F(PassesTest, AFailureElsewhereIsNamedAndLeavesNothing) {
  make();
  const auto context = make_context();
  const Tensor x = scalar_leaf(3);
  const Tensor y = call(*context, 1, "boom", {Value(x)});
  const Tensor z = call(*context, 2, "square", {Value(y)});
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Error error = error_of([&] { context->backward({z}, {}); });
    EXPECT_EQ(static_cast<int>(error.status()), 1042);
    EXPECT_EQ(error.message(), "backward pass: worker \"w1\" (rank 1): backward of \"boom\": host says no");
    EXPECT_EQ(error.origin_rank(), 1);
  }
  settle();
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(find_context(rank, *context)->gradients()->entries.empty());
    EXPECT_EQ(stats(rank).passes_open, 0u);
    EXPECT_EQ(stats(rank).passes_failed, 2u);
  }
}

TEST_F(PassesTest, AFailureHereSaysSo) {
  make(2);
  const auto context = make_context();
  const Tensor y = call(*context, 1, "square", {Value(scalar_leaf(3))});
  const auto boom = [](Tensors) -> Tensors { throw Error(Status::kRemote, "no"); };
  for (const Tensor& root : {custom("here", y, boom), custom("here", scalar_leaf(1), boom)}) {
    const Error error = error_of([&] { context->backward({root}, {}); });
    EXPECT_EQ(error.message(), "backward pass: worker \"w0\" (rank 0): backward of \"here\": no");
    EXPECT_EQ(error.origin_rank(), -1);
  }
}

// The initiator and the last worker of a chain have lost each other; the worker between them hears both.
TEST_F(PassesTest, WhoIsLostToTheInitiatorAloneEndsThePassByName) {
  make();
  const auto context = make_context(1);
  Tensor root;
  group_->worker(0).rpc().register_function("forward", [this, &root](Invocation& invocation) {
    root = group_
               ->call(0, 1, "hand_on", {Value(int64_t{2}), Value(scalar_leaf(1)), Value(scalar_leaf(2))},
                      invocation.context())
               .as_tensor();
  });
  group_->call(1, 0, "forward", {}, context->global_id());
  group_->call(0, 2, "nothing", {});
  group_->network().part("w0", "w2");
  group_->scheduler().run_for(20 * kSecond);
  const auto here = find_context(0, *context);
  const Error error = error_of([&] { here->backward({root}, {}); });
  EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();
  EXPECT_TRUE(contains(error, "w2") || contains(error, "w0")) << error.message();
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(find_context(rank, *context)->gradients()->entries.empty());
  }
  settle();
  for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(stats(rank).passes_open, 0u) << "w" << rank;
}

TEST_F(PassesTest, APassMeetingAnotherContextNamesBothAndTheCall) {
  make();
  const auto one = make_context();
  const auto other = make_context();
  const Tensor y = call(*one, 1, "square", {Value(scalar_leaf(3))});
  for (const auto& context : {other, make_local_context()}) {
    const Error error = error_of([&] { context->backward({apply(ops::kSum, {y})}, {}); });
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    EXPECT_TRUE(contains(error, "call \"square\" on \"w1\"")) << error.message();
  }
  const Error error = error_of([&] { other->backward({y}, {}); });
  EXPECT_TRUE(contains(error, std::to_string(one->id()))) << error.message();
  EXPECT_TRUE(contains(error, std::to_string(other->id()))) << error.message();
}

TEST_F(PassesTest, FastNamesTheCallsThatWereNotUsed) {
  make();
  const auto context = make_context();
  const Tensor x = scalar_leaf(3);
  const Tensor used = call(*context, 1, "square", {Value(x)});
  CallRequest request;
  request.context = context->global_id();
  request.to = "w2";
  request.function = "square";
  request.label = "side branch";
  request.args = {Value(x)};
  group_->call(0, std::move(request));
  BackwardOptions fast;
  fast.mode = BackwardMode::kFast;
  const Nanos begin = group_->scheduler().now();
  const Error error = error_of([&] { context->backward({used}, fast); });
  EXPECT_EQ(error.status(), Status::kUnreachedSend);
  EXPECT_TRUE(contains(error, "side branch")) << error.message();
  EXPECT_FALSE(contains(error, "\"w1\"")) << error.message();
  EXPECT_LT(group_->scheduler().now() - begin, kSecond);
  EXPECT_TRUE(context->gradients()->entries.empty());
  context->backward({used}, {});
  EXPECT_EQ(context->gradients()->find(x)->item(), 6);
}

TEST_F(PassesTest, ADeadlineEndsThePassAndNamesWhoIsNotDone) {
  make();
  auto gate = Future<Unit>::make();
  group_->worker(1).rpc().register_function("slow", [gate](Invocation& invocation) {
    invocation.set_result(Value(custom("slow", invocation.args()[0].as_tensor(), [gate](Tensors gradients) {
      wait(*gate, kForever);
      return gradients;
    })));
  });
  const auto context = make_context();
  const Tensor x = scalar_leaf(3);
  const Tensor y = call(*context, 1, "slow", {Value(x)});
  BackwardOptions options;
  options.timeout = 300 * kMillisecond;
  const Error error = error_of([&] { context->backward({y}, options); });
  EXPECT_EQ(error.status(), Status::kDeadline);
  EXPECT_TRUE(contains(error, "0.3 s") && contains(error, "\"w1\"")) << error.message();
  gate->complete(Unit{});
  settle();
  EXPECT_EQ(stats(1).passes_open, 0u);
  EXPECT_TRUE(context->gradients()->entries.empty());
  context->backward({y}, {});
  EXPECT_EQ(context->gradients()->find(x)->item(), 1);
}

TEST_F(PassesTest, APassRunsWithoutAThreadThatWaitsAndCanBeCancelled) {
  make();
  auto gate = Future<Unit>::make();
  group_->worker(1).rpc().register_function("slow", [gate](Invocation& invocation) {
    invocation.set_result(Value(custom("slow", invocation.args()[0].as_tensor(), [gate](Tensors gradients) {
      wait(*gate, kForever);
      return gradients;
    })));
  });
  const auto context = make_context();
  const Tensor x = scalar_leaf(3);
  const Tensor y = call(*context, 1, "slow", {Value(x)});
  auto cancelled = context->backward_async({y}, {});
  group_->scheduler().run_for(100 * kMillisecond);
  EXPECT_EQ(context->info().pass_count, 1u);
  EXPECT_FALSE(cancelled->is_done());
  cancelled->cancel();
  EXPECT_EQ(cancelled->error()->status(), Status::kCancelled);
  gate->complete(Unit{});
  settle();
  EXPECT_EQ(context->info().pass_count, 0u);
  EXPECT_TRUE(context->gradients()->entries.empty());
  auto future = context->backward_async({y}, {});
  wait(*future, kForever);
  EXPECT_TRUE(future->value().is_null());
  EXPECT_EQ(context->gradients()->find(x)->item(), 1);
}

TEST_F(PassesTest, ReleaseEndsPassesThatOthersBegan) {
  make();
  auto gate = Future<Unit>::make();
  std::shared_ptr<Future<Value>> pass;
  group_->worker(1).rpc().register_function("begin_pass", [this, gate, &pass](Invocation& invocation) {
    const auto context = group_->worker(1).dautograd().find_context(invocation.context());
    const Tensor y = custom("slow", scalar_leaf(1), [gate](Tensors gradients) {
      wait(*gate, kForever);
      return gradients;
    });
    pass = context->backward_async({y}, {});
  });
  auto context = make_context();
  group_->call(0, 1, "begin_pass", {}, context->global_id());
  context.reset();
  settle();
  ASSERT_TRUE(pass->is_done());
  EXPECT_EQ(pass->error()->status(), Status::kCancelled);
  EXPECT_EQ(stats(1).contexts, 0u);
  gate->complete(Unit{});
  settle();
  EXPECT_EQ(stats(1).passes_open, 0u);
}

// Frozen after its last DONE came in, the initiator never tells how it decided.
TEST_F(PassesTest, AVerdictLostWithItsInitiatorIsNotTakenForNoGradients) {
  make();
  const auto context = make_context(1);
  const Tensor x = scalar_leaf(3);
  const Tensor y = group_->call(1, 2, "square", {Value(x)}, context->global_id()).as_tensor();
  group_->worker(0).rpc().register_function("pass", [this](Invocation& invocation) {
    const auto here = group_->worker(0).dautograd().find_context(invocation.context());
    here->backward({apply(ops::kSum, {invocation.args()[0].as_tensor()})}, {});
  });
  CallRequest request;
  request.context = context->global_id();
  request.to = "w0";
  request.function = "pass";
  request.args = {Value(y)};
  auto answer = group_->worker(1).rpc().call(std::move(request));
  // Runs until w1 has said DONE: from then on its gradients are in doubt.
  Error in_doubt;
  while (true) {
    group_->scheduler().step();
    if (stats(0).passes_open == 1 && stats(1).passes_run == 1 && stats(2).passes_run == 1) {
      group_->freeze(0);
      in_doubt = error_of([&] { context->gradients(); });
      if (in_doubt.status() != Status::kOk) break;
      group_->thaw(0);
    }
    ASSERT_FALSE(answer->is_done());
  }
  const auto settled = context->settle_async();
  EXPECT_FALSE(settled->is_done());
  group_->kill(0);
  EXPECT_TRUE(in_doubt.status() == Status::kDeadline || in_doubt.status() == Status::kDisconnected);
  group_->scheduler().run_for(20 * kSecond);
  const Error error = error_of([&] { context->gradients(); });
  EXPECT_EQ(error.status(), Status::kDisconnected);
  EXPECT_TRUE(contains(error, "w0") && contains(error, "pass")) << error.message();
  ASSERT_TRUE(settled->is_done());  // by its lease, or by the loss
  const Status told = settled->error() == nullptr ? Status::kOk : settled->error()->status();
  EXPECT_TRUE(told == Status::kDeadline || told == Status::kDisconnected);
}

}  // namespace
}  // namespace distag::sim
