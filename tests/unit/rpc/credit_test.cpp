// The bytes of requests that a peer has not taken are bounded at their sender, and so are those that wait for that.
#include <gtest/gtest.h>

#include <algorithm>

#include "rpc_group.h"

namespace distag {
namespace {

using testing::NodeConfig;
using testing::number;
using testing::RpcGroup;

constexpr uint64_t kBudget = 12'500;
constexpr size_t kSize = 3'000;  // of an argument: three of them are on their way, and four wait
constexpr size_t kFit = 3, kWait = 4;

class CreditTest : public ::testing::Test {
 protected:
  CreditTest() {
    group.rpc(1).register_function("see", [this](Invocation& call) {
      seen.push_back(call.args()[0].as_int64());
      call.set_result(call.args()[0]);
    });
    group.rpc(1).register_function("hold", [this](Invocation& call) { held.push_back(call.defer()); });
    group.rpc(1).register_internal("distag.hold", [this](Invocation& call) { held.push_back(call.defer()); });
    group.rpc(1).register_internal("distag.see",
                                   [this](Invocation& call) { seen.push_back(call.args()[0].as_int64()); });
    group.begin();
  }

  CallRequest request(const std::string& function, int64_t which, size_t size = kSize) {
    CallRequest made;
    made.to = "w1";
    made.function = function;
    made.args = {number(which), Value::bytes(Value::Bytes(size))};
    return made;
  }
  std::shared_ptr<Future<Value>> start(const std::string& function, int64_t which, size_t size = kSize) {
    return group.rpc(0).call(request(function, which, size));
  }
  RequestBytes request_bytes() {
    RequestBytes bytes;
    group.node(0).loop.run([&] { bytes = group.rpc(0).request_bytes(); });
    return bytes;
  }
  // Makes as many calls as fill the budget and the queue behind it; the callee begins none.
  std::vector<std::shared_ptr<Future<Value>>> fill() {
    group.node(1).functions.freeze();
    std::vector<std::shared_ptr<Future<Value>>> calls;
    for (size_t i = 0; i < kFit + kWait; ++i) calls.push_back(start("see", static_cast<int64_t>(i)));
    group.scheduler.run_for(kSecond);
    for (const auto& call : calls) EXPECT_FALSE(call->is_done());
    EXPECT_EQ(group.rpc(1).stats().calls_open, kFit);
    const RequestBytes bytes = request_bytes();
    EXPECT_GE(bytes.open, kFit * kSize);
    EXPECT_LE(bytes.open, kBudget);
    EXPECT_GE(bytes.waiting, kWait * kSize);
    EXPECT_LE(bytes.waiting, kBudget + bytes.open / kFit);  // and one request
    return calls;
  }
  // Calls that waited cannot have run.
  void expect_ended(const std::vector<std::shared_ptr<Future<Value>>>& calls, Status why) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const Error error = group.error_of(*calls[i]);
      EXPECT_EQ(error.status(), why);
      EXPECT_EQ(error.may_have_run(), i < kFit) << i;
    }
  }
  void expect_seen(const std::vector<std::shared_ptr<Future<Value>>>& calls, std::vector<int64_t> expected) {
    group.node(1).functions.thaw();
    for (const auto& call : calls) group.await(*call);
    // Calls that have arrived together begin in any order.
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, expected);
    EXPECT_EQ(request_bytes().open + request_bytes().waiting, 0u);
  }

  RpcGroup group{2, 1, NodeConfig{60 * kSecond, 5 * kSecond, kBudget}};
  std::vector<int64_t> seen;
  std::vector<std::shared_ptr<PendingReply>> held;
};

TEST_F(CreditTest, WhatThePeerHasNotTakenIsBoundedAndTheRestFollows) {
  const auto calls = fill();
  expect_seen(calls, {0, 1, 2, 3, 4, 5, 6});
}

TEST_F(CreditTest, RequestsArriveInTheOrderInWhichTheyWereMade) {
  group.node(1).loop.freeze();
  std::vector<std::shared_ptr<Future<Value>>> calls;
  // There is room for a small one beside the first.
  const std::vector<size_t> sizes = {10'000, 10'000, 1, 1, 2 * kBudget, kSize, 1};
  for (size_t i = 0; i < sizes.size(); ++i) {
    CallRequest made = request("distag.see", static_cast<int64_t>(i), sizes[i]);
    made.has_time = true;
    calls.push_back(group.rpc(0).call(std::move(made)));
  }
  group.scheduler.run_for(kMillisecond);
  group.node(1).loop.thaw();
  for (const auto& call : calls) group.await(*call);
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST_F(CreditTest, OneMoreIsRefusedAtOnce) {
  const auto calls = fill();
  const Nanos before = group.scheduler.now();
  const Error error = group.error_of(*start("see", 100));
  EXPECT_EQ(error.status(), Status::kOverloaded);
  EXPECT_FALSE(error.may_have_run());
  EXPECT_EQ(
      error.message(),
      "call \"see\" on \"w1\" (rank 1): requests of 12144 bytes that it has not begun are on their way to it, and "
      "16192 more wait, for which max_in_flight_bytes is 12500: wait for the futures of earlier calls first, or raise "
      "it");
  EXPECT_LT(group.scheduler.now() - before, kMillisecond);
  expect_seen(calls, {0, 1, 2, 3, 4, 5, 6});
}

TEST_F(CreditTest, OneThatHasTheTimeWaitsToItsDeadline) {
  auto calls = fill();
  CallRequest patient = request("see", 7);
  patient.has_time = true;
  patient.timeout = 2 * kSecond;
  const Error error = group.error_of(*group.rpc(0).call(std::move(patient)));
  EXPECT_EQ(error.status(), Status::kDeadline);
  EXPECT_FALSE(error.may_have_run());
  patient = request("see", 8);
  patient.has_time = true;
  calls.push_back(group.rpc(0).call(std::move(patient)));
  expect_seen(calls, {0, 1, 2, 3, 4, 5, 6, 8});
}

TEST_F(CreditTest, ThoseThatAreCancelledLeaveTheirPlace) {
  const auto calls = fill();
  calls[3]->cancel();
  calls[5]->cancel();
  const auto another = start("see", 7);
  group.scheduler.run_for(kSecond);
  EXPECT_FALSE(another->is_done());
  expect_seen({calls[0], calls[6], another}, {0, 1, 2, 4, 6, 7});
}

// They have no number yet: their room is that of others.
TEST_F(CreditTest, ThoseThatAreCancelledBeforeThereIsAConnectionLeaveTheirRoom) {
  group.node(1).loop.freeze();
  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (int64_t i = 0; i < 7; ++i) calls.push_back(start("see", i));
  group.scheduler.run_for(kMillisecond);
  for (const size_t i : {0u, 1u, 2u}) calls[i]->cancel();
  group.scheduler.run_for(kMillisecond);
  group.node(1).loop.thaw();
  group.node(1).functions.freeze();
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(group.rpc(1).stats().calls_open, kFit);
  expect_seen({calls[3], calls[4], calls[5], calls[6]}, {3, 4, 5, 6});
}

// The wish that was told for one that is gone would wait for all that is out.
TEST_F(CreditTest, AfterACancelRoomIsAskedForTheNext) {
  group.node(1).functions.freeze();
  const auto queued = start("see", 0);
  const auto running = start("distag.hold", 1, 7'000);
  CallRequest alone = request("see", 2, kBudget);
  const auto cancelled = group.rpc(0).call(std::move(alone));
  CallRequest patient = request("see", 3);
  patient.has_time = true;
  const auto last = group.rpc(0).call(std::move(patient));
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 2u);
  cancelled->cancel();
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 3u);
  expect_seen({queued, last}, {0, 3});
  held.at(0)->finish(Value());
  group.await(*running);
}

TEST_F(CreditTest, ThoseThatEndHoldNoArguments) {
  auto calls = fill();
  bool is_freed = false;
  static const float kOne = 1;
  CallRequest made = request("see", 7);
  const int64_t many = 1;
  made.args.emplace_back(Tensor::over(Buffer::borrow(&kOne, sizeof kOne, [&is_freed] { is_freed = true; }),
                                      Dtype::kFloat32, Dims{many}, Dims{1}));
  made.has_time = true;
  const auto waiting = group.rpc(0).call(std::move(made));
  group.scheduler.run_for(kSecond);
  EXPECT_FALSE(is_freed);
  waiting->cancel();
  group.scheduler.run_for(kSecond);
  EXPECT_TRUE(is_freed);  // though its future is held
  expect_seen(calls, {0, 1, 2, 3, 4, 5, 6});
}

TEST_F(CreditTest, OneBeyondTheBudgetGoesAlone) {
  group.node(1).functions.freeze();
  const auto small = start("see", 0, 1);
  const auto large = start("see", 1, 5 * kBudget);
  EXPECT_EQ(group.error_of(*start("see", 3, 1)).status(), Status::kOverloaded);
  CallRequest patient = request("see", 2, 1);
  patient.has_time = true;
  const auto last = group.rpc(0).call(std::move(patient));
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 1u);
  expect_seen({small, large, last}, {0, 1, 2});
}

// The answers are put off, so nothing but CREDIT tells that they have begun.
TEST_F(CreditTest, FunctionsThatHaveBegunTakeNothing) {
  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (size_t i = 0; i < 100; ++i) {
    CallRequest made = request("hold", static_cast<int64_t>(i));
    made.has_time = true;
    calls.push_back(group.rpc(0).call(std::move(made)));
  }
  ASSERT_TRUE(group.run_until([this] { return held.size() == 100; }));
  for (const auto& reply : held) reply->finish(number(1));
  for (const auto& call : calls) group.await(*call);
}

// Calls in sequence cost far more than the budget. No caller has to ask, so they take as long as with ample room.
TEST(AnswersOfRequests, TellWhatWasTaken) {
  const auto time_of = [](uint64_t max_in_flight) {
    RpcGroup group(2, 1, NodeConfig{60 * kSecond, 5 * kSecond, max_in_flight});
    group.rpc(1).register_function("see", [](Invocation&) {});
    group.begin();
    const Nanos begun = group.scheduler.now();
    for (int64_t i = 0; i < 50; ++i) group.call(0, "w1", "see", {Value::bytes(Value::Bytes(kSize))});
    return group.scheduler.now() - begun;
  };
  EXPECT_EQ(time_of(kSize), time_of(RpcConfig{}.max_in_flight));
}

TEST_F(CreditTest, RequestsThatAreRefusedTakeNothing) {
  for (int64_t i = 0; i < 50; ++i) {
    EXPECT_EQ(group.error_of(*start("nothing of that name", i)).status(), Status::kNotFound);
  }
  CallRequest late = request("see", 1);
  for (int64_t i = 0; i < 50; ++i) {
    late = request("hold", i);
    late.timeout = kMillisecond;
    EXPECT_EQ(group.error_of(*group.rpc(0).call(std::move(late))).status(), Status::kDeadline);
    group.scheduler.run_for(10 * kMillisecond);
  }
  EXPECT_EQ(group.call(0, "w1", "see", {number(5)}).as_int64(), 5);
}

// By the callee's clock, or by CANCEL: their arguments are there until a thread comes by.
TEST_F(CreditTest, RequestsThatEndInTheQueueTakeRoomUntilTheyAreDropped) {
  group.node(1).functions.freeze();
  for (int64_t i = 0; i < 50; ++i) {
    CallRequest late = request("see", i);
    late.timeout = 10 * kMillisecond;
    const auto first = group.rpc(0).call(std::move(late));
    const auto second = start("see", i);
    group.scheduler.run_for(5 * kMillisecond);
    second->cancel();
    EXPECT_EQ(group.error_of(*first).status(), Status::kDeadline);
    group.scheduler.run_for(5 * kMillisecond);
  }
  EXPECT_EQ(group.rpc(1).stats().calls_served, kFit);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 0u);
  group.node(1).functions.thaw();
  EXPECT_EQ(group.call(0, "w1", "see", {number(5)}).as_int64(), 5);
}

TEST_F(CreditTest, TheLossOfThePeerEndsThoseThatWait) {
  const auto calls = fill();
  group.network.kill("w1");
  expect_ended(calls, Status::kDisconnected);
}

TEST_F(CreditTest, AShutdownEndsThoseThatWait) {
  const auto calls = fill();
  group.node(0).shutdown(0);
  expect_ended(calls, Status::kCancelled);
}

TEST_F(CreditTest, AGracefulShutdownWaitsForThem) {
  const auto calls = fill();
  const auto first = group.node(0).shutdown(30 * kSecond);
  const auto second = group.node(1).shutdown(30 * kSecond);
  expect_seen(calls, {0, 1, 2, 3, 4, 5, 6});
  group.await(*first);
  group.await(*second);
  EXPECT_TRUE(first->value().clean);
}

// More go out at once than in one turn of the loop.
TEST(ManyRequests, FollowWhenALargeOneIsTaken) {
  constexpr uint64_t kLarge = uint64_t{1} << 20;
  constexpr size_t kMany = 900;
  RpcGroup group(2, 1, NodeConfig{60 * kSecond, 5 * kSecond, kLarge});
  size_t seen = 0;
  group.rpc(1).register_function("see", [&seen](Invocation&) { ++seen; });
  group.begin();
  group.node(1).functions.freeze();
  const auto large = group.start(0, "w1", "see", {Value::bytes(Value::Bytes(kLarge))});
  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (size_t i = 0; i < kMany; ++i) calls.push_back(group.start(0, "w1", "see", {number(1)}));
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 1u);
  group.node(1).functions.thaw();
  for (const auto& call : calls) group.await(*call);
  EXPECT_EQ(seen, kMany + 1);
}

// Wrong credit of a peer breaks nothing, and frees no more than was sent.
TEST_F(CreditTest, WordsThatAreWrongChangeLittle) {
  const auto calls = fill();
  Peer peer;
  group.node(0).loop.run([&] { peer = *group.node(0).session->find(group.node(1).session->self().incarnation); });
  const auto say = [&](wire::Body body) {
    group.node(0).loop.run([&] {
      wire::Message message{0, 0, {}, std::move(body)};
      EXPECT_EQ(group.node(0).handle(peer, message), Heard::kHandled);
    });
  };
  say(wire::WantCredit{~uint64_t{0}});
  say(wire::WantCredit{0});
  say(wire::Credit{0});
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(group.rpc(1).stats().calls_open, kFit);
  say(wire::Credit{~uint64_t{0}});
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(group.rpc(1).stats().calls_open, 2 * kFit);
  expect_seen(calls, {0, 1, 2, 3, 4, 5, 6});
}

}  // namespace
}  // namespace distag
