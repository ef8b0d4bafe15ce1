#include <gtest/gtest.h>

#include "rpc_group.h"

namespace distag {
namespace {

using testing::NodeConfig;
using testing::number;
using testing::RpcGroup;

CallRequest request_to(const std::string& to, const std::string& function, Nanos timeout = 0) {
  CallRequest request;
  request.to = to;
  request.function = function;
  request.timeout = timeout;
  return request;
}

bool is_about(Nanos time, Nanos expected) { return time >= expected && time < expected + kMillisecond; }

// Functions that hold their call open, and what has been seen of them.
struct Holder {
  std::shared_ptr<Invocation> invocation;
  std::shared_ptr<PendingReply> reply;
  int runs = 0;

  Function function() {
    return [this](Invocation& call) {
      ++runs;
      invocation = call.shared_from_this();
      reply = call.defer();
    };
  }
};

TEST(Deadlines, AreKeptByTheCallerAndEndTheCallAtTheCallee) {
  RpcGroup group(2);
  Holder holder;
  group.rpc(1).register_function("hold", holder.function());
  group.begin();
  const Nanos begun = group.scheduler.now();
  auto future = group.rpc(0).call(request_to("w1", "hold", 2 * kSecond));
  const Error error = group.error_of(*future);
  EXPECT_EQ(error.status(), Status::kDeadline);
  EXPECT_EQ(error.message(), "call \"hold\" on \"w1\" (rank 1): no answer within 2 s");
  EXPECT_TRUE(error.may_have_run());
  EXPECT_TRUE(is_about(group.scheduler.now() - begun, 2 * kSecond));
  group.scheduler.run_for(10 * kMillisecond);
  EXPECT_TRUE(holder.reply->is_cancelled());
  EXPECT_TRUE(holder.invocation->is_cancelled());
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
  EXPECT_TRUE(holder.reply->finish(number(1)));  // no caller waits for it
  EXPECT_FALSE(holder.reply->finish(number(1)));
}

TEST(OpenCalls, AreToldOldestFirstAndOnlyTheOldest) {
  constexpr int kCalls = 300, kTold = 4;
  RpcGroup group(2);
  std::vector<std::shared_ptr<PendingReply>> held;
  group.rpc(1).register_function("hold", [&held](Invocation& call) { held.push_back(call.defer()); });
  group.begin();
  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (int i = 0; i < kCalls; ++i) {
    CallRequest request = request_to("w1", "hold", kForever);
    request.label = std::to_string(i);
    calls.push_back(group.rpc(0).call(std::move(request)));
    group.scheduler.run_for(kMillisecond);
  }
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    std::vector<OpenCall> told;
    group.node(rank).loop.run([&] { told = group.rpc(rank).open_calls(kTold); });
    ASSERT_EQ(told.size(), static_cast<size_t>(kTold));
    for (int i = 0; i < kTold; ++i) EXPECT_EQ(told[static_cast<size_t>(i)].label, std::to_string(i)) << "rank " << rank;
  }
  for (const auto& reply : held) reply->finish(number(1));
  for (const auto& call : calls) group.await(*call);
}

TEST(Deadlines, ComeFromTheWorkerUnlessGiven) {
  NodeConfig config;
  config.call_timeout = 3 * kSecond;
  RpcGroup group(2, 1, config);
  Holder holder;
  group.rpc(1).register_function("hold", holder.function());
  group.begin();
  const Nanos begun = group.scheduler.now();
  EXPECT_EQ(group.error_of(*group.start(0, "w1", "hold")).status(), Status::kDeadline);
  EXPECT_TRUE(is_about(group.scheduler.now() - begun, 3 * kSecond));
}

TEST(Deadlines, AManyCallsThatEndLeaveNoTimersBehind) {
  RpcGroup group(2);
  group.rpc(1).register_function("quick", [](Invocation&) {});
  group.begin();
  for (int i = 0; i < 2000; ++i) group.call(0, "w1", "quick");
  Holder holder;
  group.rpc(1).register_function("hold", holder.function());
  const Nanos begun = group.scheduler.now();
  EXPECT_EQ(group.error_of(*group.rpc(0).call(request_to("w1", "hold", kSecond))).status(), Status::kDeadline);
  EXPECT_TRUE(is_about(group.scheduler.now() - begun, kSecond));
}

TEST(Deadlines, ARequestThatExpiredInTheQueueDoesNotRun) {
  RpcGroup group(2);
  Holder holder;
  group.rpc(1).register_function("hold", holder.function());
  group.begin();
  group.node(1).functions.freeze();
  auto future = group.rpc(0).call(request_to("w1", "hold", kSecond));
  const Error error = group.error_of(*future);
  EXPECT_EQ(error.status(), Status::kDeadline);
  group.scheduler.run_for(10 * kMillisecond);  // the callee's clock began later
  group.node(1).functions.thaw();
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(holder.runs, 0);
}

TEST(Deadlines, ThatPassBeforeTheCallIsMadeRefuseIt) {
  RpcGroup group(2);
  Holder outer;
  group.rpc(0).register_function("outer", outer.function());
  group.rpc(1).register_function("hold", outer.function());
  group.begin();
  auto future = group.rpc(0).call(request_to("w0", "outer", kSecond));
  group.await(*future);
  group.scheduler.run_for(kMillisecond);
  CallRequest nested = request_to("w1", "hold");
  nested.within = outer.invocation;
  const Error error = group.error_of(*group.rpc(0).call(nested));
  EXPECT_EQ(error.status(), Status::kCancelled);
  EXPECT_FALSE(error.may_have_run());
  EXPECT_EQ(outer.runs, 1);
}

TEST(Deadlines, OfTheInvocationBoundCallsMadeWithinIt) {
  RpcGroup group(3);
  Holder holder;
  Nanos left = 0;
  group.rpc(2).register_function("hold", [&](Invocation& invocation) {
    left = invocation.time_left();
    holder.function()(invocation);
  });
  group.rpc(1).register_function("outer", [&group](Invocation& invocation) {
    CallRequest nested = request_to("w2", "hold", 100 * kSecond);
    nested.within = invocation.shared_from_this();
    auto future = group.rpc(1).call(nested);
    wait(*future, kForever);
    EXPECT_EQ(future->error()->status() == Status::kDeadline || future->error()->status() == Status::kCancelled, true);
    future->value();
  });
  group.begin();
  const Nanos begun = group.scheduler.now();
  EXPECT_EQ(group.error_of(*group.rpc(0).call(request_to("w1", "outer", 2 * kSecond))).status(), Status::kDeadline);
  EXPECT_TRUE(is_about(group.scheduler.now() - begun, 2 * kSecond));
  EXPECT_GT(left, kSecond);
  EXPECT_LE(left, 2 * kSecond);
  group.scheduler.run_for(100 * kMillisecond);
  EXPECT_TRUE(holder.reply->is_cancelled());
}

TEST(Cancels, ReachTheCallee) {
  RpcGroup group(2);
  Holder holder;
  group.rpc(1).register_function("hold", holder.function());
  group.begin();
  auto future = group.start(0, "w1", "hold");
  ASSERT_TRUE(group.run_until([&holder] { return holder.runs == 1; }));
  future->cancel();
  EXPECT_TRUE(future->is_done());
  EXPECT_EQ(future->error()->status(), Status::kCancelled);
  EXPECT_TRUE(future->error()->may_have_run());
  EXPECT_TRUE(group.run_until([&holder] { return holder.reply->is_cancelled(); }));
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(group.rpc(0).stats().calls_open, 0u);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
}

TEST(Cancels, BeforeItIsSentMeanThatItDoesNotRun) {
  RpcGroup group(2);
  Holder holder;
  group.rpc(1).register_function("hold", holder.function());
  group.begin();
  auto future = group.start(0, "w1", "hold");
  future->cancel();
  EXPECT_FALSE(future->error()->may_have_run());
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(holder.runs, 0);
  EXPECT_EQ(group.rpc(0).stats().calls_open, 0u);
}

// Whatever a cancel meets on its way, the flag tells the truth: without it the function has not run.
TEST(Cancels, TellWhetherItMayHaveRunAtAnyTime) {
  int flagged = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    RpcGroup group(2, seed);
    Holder holder;
    group.rpc(1).register_function("hold", holder.function());
    group.begin();
    auto future = group.start(0, "w1", "hold");
    for (uint64_t steps = seed % 40; steps > 0; --steps) group.scheduler.step();
    // A message that has come meanwhile, a WELCOME for one, is there before the cancel is.
    if (seed % 80 < 40) group.node(0).loop.freeze();
    group.scheduler.run_for(5 * kMillisecond);
    future->cancel();
    group.node(0).loop.thaw();
    group.scheduler.run_for(kSecond);
    if (!future->error()->may_have_run()) {
      EXPECT_EQ(holder.runs, 0) << "seed " << seed;
    } else {
      ++flagged;
    }
  }
  EXPECT_GT(flagged, 10);
}

TEST(Cancels, WithinAnInvocationGoWithIt) {
  RpcGroup group(3);
  Holder inner;
  group.rpc(2).register_function("hold", inner.function());
  std::shared_ptr<Future<Value>> nested_future;
  bool outer_cancelled = false;
  group.rpc(1).register_function("outer", [&](Invocation& invocation) {
    CallRequest nested = request_to("w2", "hold");
    nested.within = invocation.shared_from_this();
    nested_future = group.rpc(1).call(nested);
    wait(*nested_future, kForever);
    outer_cancelled = invocation.is_cancelled();
  });
  group.begin();
  auto future = group.start(0, "w1", "outer");
  ASSERT_TRUE(group.run_until([&inner] { return inner.runs == 1; }));
  future->cancel();
  group.await(*nested_future);
  EXPECT_EQ(nested_future->error()->status(), Status::kCancelled);
  EXPECT_EQ(nested_future->error()->message(),
            "call \"hold\" on \"w2\" (rank 2): call \"outer\", within which it was made, was cancelled");
  EXPECT_TRUE(group.run_until([&] { return inner.reply->is_cancelled() && outer_cancelled; }));
}

TEST(Cancels, AnInvocationOfAnotherWorkerIsNoPlaceForACall) {
  RpcGroup group(2);
  Holder holder;
  group.rpc(1).register_function("hold", holder.function());
  group.begin();
  group.start(0, "w1", "hold");
  ASSERT_TRUE(group.run_until([&holder] { return holder.runs == 1; }));
  CallRequest nested = request_to("w1", "hold");
  nested.within = holder.invocation;
  try {
    group.rpc(0).call(nested);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
  }
}

TEST(Losses, EndCallsToTheWorkerAndCancelThoseFromIt) {
  RpcGroup group(3);
  Holder at_lost;
  Holder at_other;
  group.rpc(1).register_function("hold", at_lost.function());
  group.rpc(2).register_function("hold", at_other.function());
  group.begin();
  auto to_lost = group.start(0, "w1", "hold");
  auto from_lost = group.start(1, "w2", "hold");
  ASSERT_TRUE(group.run_until([&] { return at_lost.runs == 1 && at_other.runs == 1; }));
  group.network.kill("w1");
  group.node(1).loop.freeze();
  const Error error = group.error_of(*to_lost);
  EXPECT_EQ(error.status(), Status::kDisconnected);
  EXPECT_NE(error.message().find("call \"hold\" on \"w1\" (rank 1): worker \"w1\""), std::string::npos)
      << error.message();
  EXPECT_TRUE(error.may_have_run());
  EXPECT_TRUE(group.scheduler.run_until([&at_other] { return at_other.reply->is_cancelled(); }, kSecond));
  EXPECT_EQ(group.node(0).members.membership().find_by_name("w1")->state, Standing::kLost);
  const Error later = group.error_of(*group.start(0, "w1", "hold"));
  EXPECT_EQ(later.status(), Status::kDisconnected);
  EXPECT_FALSE(later.may_have_run());
}

TEST(Losses, AWorkerThatLeftIsDisconnected) {
  RpcGroup group(2);
  Holder holder;
  group.rpc(1).register_function("hold", holder.function());
  group.begin();
  auto future = group.start(0, "w1", "hold");
  ASSERT_TRUE(group.run_until([&holder] { return holder.runs == 1; }));
  group.await(*group.node(1).shutdown(0));
  const Error error = group.error_of(*future);
  EXPECT_EQ(error.status(), Status::kDisconnected);
  EXPECT_EQ(error.message(), "call \"hold\" on \"w1\" (rank 1): worker \"w1\" (rank 1) has left the group");
  EXPECT_TRUE(error.may_have_run());
  EXPECT_EQ(group.node(0).members.membership().find_by_name("w1")->state, Standing::kLeft);
}

}  // namespace
}  // namespace distag
