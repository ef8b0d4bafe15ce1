// The bytes of answers that a caller has not acknowledged are bounded: its next calls do not begin until it has.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/builtins.h"
#include "rpc_group.h"

namespace distag {
namespace {

using testing::NodeConfig;
using testing::number;
using testing::RpcGroup;

constexpr uint64_t kBudget = 12'500;
constexpr size_t kSize = 3'000;  // of an answer
constexpr size_t kFit = 4;       // answers that use the room up

class AnswerRoomTest : public ::testing::Test {
 protected:
  using Calls = std::vector<std::shared_ptr<Future<Value>>>;

  AnswerRoomTest() {
    group.rpc(1).register_function("give", [this](Invocation& call) {
      ++begun;
      call.set_result(Value::bytes(Value::Bytes(static_cast<size_t>(call.args()[0].as_int64()))));
    });
    group.rpc(1).register_function("hold", [this](Invocation& call) { held.push_back(call.defer()); });
    group.rpc(1).register_internal("distag.give", [this](Invocation& call) {
      ++begun;
      call.set_result(Value::bytes(Value::Bytes(kSize)));
    });
    group.rpc(0).register_function("see", [](Invocation&) {});
    group.begin();
    group.call(0, "w1", "give", {number(0)});
    begun = 0;
  }

  Calls start(const std::string& function, size_t count, const Values& args) {
    Calls calls;
    for (size_t i = 0; i < count; ++i) {
      CallRequest request;
      request.to = "w1";
      request.function = function;
      request.args = args;
      request.timeout = timeout;
      calls.push_back(group.rpc(0).call(std::move(request)));
    }
    return calls;
  }
  // The calls have come to the callee, and their caller reads no answer for less than its lease.
  Calls start_unread(const std::string& function, size_t count, const Values& args) {
    group.node(1).loop.freeze();
    group.node(1).functions.freeze();
    Calls calls = start(function, count, args);
    group.scheduler.run_for(10 * kMillisecond);
    group.node(0).loop.freeze();
    group.node(1).loop.thaw();
    group.scheduler.run_for(10 * kMillisecond);
    group.node(1).functions.thaw();
    group.scheduler.run_for(2 * kSecond);
    return calls;
  }
  Calls start_unread(size_t count, size_t size = kSize) {
    return start_unread("give", count, {number(static_cast<int64_t>(size))});
  }
  void expect_done(const Calls& calls, size_t size = kSize) {
    group.node(0).loop.thaw();
    for (const auto& call : calls) {
      group.await(*call);
      ASSERT_EQ(call->error(), nullptr) << call->error()->message();
      EXPECT_EQ(call->value().as_bytes().size(), size);
    }
  }

  RpcGroup group{2, 1, NodeConfig{60 * kSecond, 5 * kSecond, kBudget}};
  Nanos timeout = 60 * kSecond;
  size_t begun = 0;
  std::vector<std::shared_ptr<PendingReply>> held;
};

TEST_F(AnswerRoomTest, CallsOfACallerThatReadsNoAnswersWait) {
  const Calls calls = start_unread(10);
  EXPECT_EQ(begun, kFit);
  EXPECT_LT(group.node(1).session->stats().bytes_in_flight, (kFit + 1) * kSize);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 10 - kFit);
  expect_done(calls);
  EXPECT_EQ(begun, 10u);
}

TEST_F(AnswerRoomTest, OneAnswerBeyondTheRoomGoes) {
  const Calls calls = start_unread(3, 5 * kBudget);
  EXPECT_EQ(begun, 1u);
  expect_done(calls, 5 * kBudget);
}

TEST_F(AnswerRoomTest, SmallAnswersCountAsWell) {
  constexpr size_t kSmall = 500;
  const Calls calls = start_unread(11, kSmall);
  EXPECT_EQ(begun, 9u);
  expect_done(calls, kSmall);
}

TEST_F(AnswerRoomTest, FunctionsOfDistagWaitAsWell) {
  const Calls calls = start_unread("distag.give", 9, {});
  EXPECT_EQ(begun, kFit);
  expect_done(calls);
}

TEST_F(AnswerRoomTest, OpsWaitAsWell) {
  const Values args = {Value(testing::tensor(std::vector<float>(kSize / sizeof(float))))};
  const Calls calls = start_unread("neg", 3, args);
  const Calls more = start("neg", 6, args);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
  group.node(0).loop.thaw();
  for (const auto& call : calls) group.await(*call);
  for (const auto& call : more) group.await(*call);
}

// The answers are put off, so nothing but their beginnings lets the next ones in.
TEST_F(AnswerRoomTest, FunctionsThatPutTheirAnswersOffHoldUpNobody) {
  Calls calls = start_unread(kFit);
  group.node(0).loop.thaw();
  const Calls later = start("hold", 2, {});
  for (const auto& call : later) EXPECT_FALSE(call->is_done());
  ASSERT_TRUE(group.run_until([this] { return held.size() == 2; }));
  for (const auto& reply : held) reply->finish(Value());
  for (const auto& call : later) group.await(*call);
  expect_done(calls);
}

// More calls wait than begin at once, and there is a single acknowledgement that makes room.
TEST(FullAnswerRoom, AllThatWaitFollowThoughTheirAnswersArePutOff) {
  constexpr uint64_t kRoom = 100'000;
  constexpr size_t kMany = 40;
  RpcGroup group(2, 1, NodeConfig{60 * kSecond, 5 * kSecond, kRoom});
  std::vector<std::shared_ptr<PendingReply>> held;
  group.rpc(1).register_function("hold", [&held](Invocation& call) { held.push_back(call.defer()); });
  group.rpc(1).register_internal("distag.fill",
                                 [](Invocation& call) { call.set_result(Value::bytes(Value::Bytes(kRoom))); });
  group.begin();
  group.call(0, "w1", "distag.fill");
  group.node(1).loop.freeze();
  group.node(1).functions.freeze();
  const auto filling = group.start(0, "w1", "distag.fill");
  std::vector<std::shared_ptr<Future<Value>>> waiting;
  for (size_t i = 0; i < kMany; ++i) waiting.push_back(group.start(0, "w1", "hold"));
  group.scheduler.run_for(10 * kMillisecond);
  group.node(0).loop.freeze();
  group.node(1).loop.thaw();
  group.scheduler.run_for(10 * kMillisecond);
  group.node(1).functions.thaw();
  group.scheduler.run_for(kSecond);
  EXPECT_TRUE(held.empty());
  group.node(0).loop.thaw();
  ASSERT_TRUE(group.scheduler.run_until([&held] { return held.size() == kMany; }, 10 * kSecond));
  for (const auto& reply : held) reply->finish(Value());
  for (const auto& call : waiting) group.await(*call);
  group.await(*filling);
}

TEST_F(AnswerRoomTest, OneThatWaitsEndsAtItsDeadlineAndNeverRuns) {
  timeout = kSecond;
  const Calls calls = start_unread(10);
  EXPECT_EQ(begun, kFit);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
  group.node(0).loop.thaw();
  for (const auto& call : calls) group.await(*call);
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(), [](const auto& call) { return call->error() == nullptr; }), kFit);
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(begun, kFit);
  timeout = 60 * kSecond;
  expect_done(start("give", 3, {number(kSize)}));
}

TEST_F(AnswerRoomTest, OthersAreNotHeldUp) {
  RpcGroup three(3, 1, NodeConfig{60 * kSecond, 5 * kSecond, kBudget});
  size_t given = 0;
  three.rpc(1).register_function("give", [&given](Invocation& call) {
    ++given;
    call.set_result(Value::bytes(Value::Bytes(kSize)));
  });
  three.begin();
  Calls calls;
  for (int i = 0; i < 3; ++i) calls.push_back(three.start(0, "w1", "give"));
  three.scheduler.run_for(50 * kMicrosecond);
  three.node(0).loop.freeze();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(three.call(2, "w1", "give").as_bytes().size(), kSize);
  three.node(0).loop.thaw();
  for (const auto& call : calls) three.await(*call);
}

// Answers to a lost caller are never acknowledged, and no caller waits for those that would follow.
TEST_F(AnswerRoomTest, TheLossOfTheCallerEndsThoseThatWait) {
  const Calls calls = start_unread(10);
  group.network.kill("w0");
  group.scheduler.run_for(20 * kSecond);
  EXPECT_EQ(begun, kFit);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
}

TEST_F(AnswerRoomTest, AShutdownEndsThoseThatWait) {
  const Calls calls = start_unread(10);
  group.node(1).shutdown(0);
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(begun, kFit);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
  group.node(0).loop.thaw();
  for (const auto& call : calls) group.await(*call);
}

TEST_F(AnswerRoomTest, AGracefulShutdownWaitsForThem) {
  const Calls calls = start_unread(10);
  const auto callee = group.node(1).shutdown(30 * kSecond);
  group.scheduler.run_for(kSecond);
  group.node(0).loop.thaw();
  const auto caller = group.node(0).shutdown(30 * kSecond);
  expect_done(calls);
  group.await(*callee);
  EXPECT_TRUE(callee->value().clean);
}

// The answer of a call that its caller has given up meanwhile leaves its room all the same.
TEST_F(AnswerRoomTest, AnswersThatNobodyWaitsForLeaveTheirRoom) {
  for (int i = 0; i < 20; ++i) {
    const auto call = group.start(0, "w1", "hold");
    ASSERT_TRUE(group.run_until([this] { return held.size() == 1; }));
    call->cancel();
    group.scheduler.run_for(kSecond);
    held.front()->finish(Value::bytes(Value::Bytes(kSize)));
    held.clear();
  }
  EXPECT_EQ(group.call(0, "w1", "give", {number(5)}).as_bytes().size(), 5u);
}

TEST_F(AnswerRoomTest, AWorkerWaitsForItsOwnAnswersAsForThoseOfOthers) {
  group.rpc(0).register_function("self", [](Invocation& call) { call.set_result(Value::bytes(Value::Bytes(kSize))); });
  Calls calls;
  for (int i = 0; i < 100; ++i) {
    CallRequest request;
    request.to = "w0";
    request.function = "self";
    request.has_time = true;
    calls.push_back(group.rpc(0).call(std::move(request)));
  }
  expect_done(calls);
}

}  // namespace
}  // namespace distag
