// Messages about calls that no correct peer sends, or that come when they no longer matter.
#include <gtest/gtest.h>

#include "base/violation.h"
#include "rpc_group.h"

namespace distag {
namespace {

using testing::RpcGroup;

// Three workers. w0 has called "hold" on w1, and w1 on w0; neither is answered.
class ForgedTest : public ::testing::Test {
 protected:
  ForgedTest() {
    for (size_t rank = 0; rank < 3; ++rank) {
      group_.rpc(rank).register_function("hold", [this, rank](Invocation& call) {
        ++runs_[rank];
        replies_.push_back(call.defer());
      });
    }
    group_.begin();
    to_w1_ = group_.start(0, "w1", "hold");
    to_w0_ = group_.start(1, "w0", "hold");
    EXPECT_TRUE(group_.run_until([this] { return runs_[0] == 1 && runs_[1] == 1; }));
  }

  Peer peer(size_t rank) { return group_.node(rank).session->self(); }
  Id id(size_t rank, uint64_t counter) { return {peer(rank).incarnation, counter}; }
  // As if it came now from a peer's stream.
  void deliver(size_t to, size_t from, wire::Body body) {
    group_.node(to).loop.run([&] {
      wire::Message message{0, 0, {}, std::move(body)};
      group_.node(to).handle(peer(from), message);
    });
  }
  void expect_violation(size_t to, size_t from, const wire::Body& body) {
    EXPECT_THROW(deliver(to, from, body), Violation) << wire::body_name(body);
  }

  RpcGroup group_{3};
  int runs_[3] = {0, 0, 0};
  std::vector<std::shared_ptr<PendingReply>> replies_;
  std::shared_ptr<Future<Value>> to_w1_;
  std::shared_ptr<Future<Value>> to_w0_;
};

TEST_F(ForgedTest, AnAnswerComesFromWhoWasCalled) {
  expect_violation(0, 2, wire::Reply{id(0, 1), false, {}, Value(int64_t{7}), {}});
  EXPECT_FALSE(to_w1_->is_done());
}

TEST_F(ForgedTest, AnAnswerIsToACallThatWasMade) {
  expect_violation(0, 1, wire::Reply{id(0, 99), false, {}, Value(), {}});
  expect_violation(0, 1, wire::Reply{id(1, 1), false, {}, Value(), {}});
}

TEST_F(ForgedTest, ACallHasAnIdOfItsCallerThatIsNotOpen) {
  expect_violation(0, 1, wire::Call{id(2, 1), "hold", {}, kForever, {}, ""});
  expect_violation(0, 1, wire::Call{id(1, 1), "hold", {}, kForever, {}, ""});
  group_.scheduler.run_for(kSecond);
  EXPECT_EQ(runs_[0], 1);
}

TEST_F(ForgedTest, ACancelComesFromTheCaller) {
  expect_violation(0, 2, wire::Cancel{id(1, 1)});
  EXPECT_FALSE(replies_[0]->is_cancelled());
  EXPECT_FALSE(replies_[1]->is_cancelled());
}

TEST_F(ForgedTest, ARequestWithoutTimeDoesNotRun) {
  deliver(0, 1, wire::Call{id(1, 2), "hold", {}, 0, {}, ""});
  group_.scheduler.run_for(kSecond);
  EXPECT_EQ(runs_[0], 1);
}

// Nor does its call fail: it is answered, and counted once.
TEST_F(ForgedTest, AMalformedTraceparentIsDroppedAndCounted) {
  std::vector<bool> seen;
  group_.rpc(0).register_function("see", [&seen](Invocation& call) { seen.push_back(call.trace_parent() != nullptr); });
  wire::Call bad{id(1, 3), "see", {}, kForever, {}, ""};
  bad.has_bad_trace_parent = true;
  deliver(0, 1, bad);
  wire::Call good{id(1, 4), "see", {}, kForever, {}, ""};
  good.trace_parent = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  deliver(0, 1, good);
  ASSERT_TRUE(group_.run_until([&seen] { return seen.size() == 2; }));
  EXPECT_NE(seen[0], seen[1]);  // in either order
  EXPECT_EQ(group_.rpc(0).stats().trace_parents_dropped, 1u);
  EXPECT_EQ(group_.rpc(1).stats().trace_parents_dropped, 0u);
}

// Neither another member, nor the leader about an earlier round.
TEST_F(ForgedTest, AShutdownEndsByTheVerdictOnItsRoundAlone) {
  const auto first = group_.node(0).shutdown(kForever);
  const auto second = group_.node(1).shutdown(kForever);
  group_.scheduler.run_for(kSecond);
  for (uint64_t round = 0; round < 50; ++round) deliver(1, 2, wire::ShutdownVerdict{round});
  deliver(1, 0, wire::ShutdownVerdict{99});
  group_.scheduler.run_for(kSecond);
  EXPECT_FALSE(first->is_done());
  EXPECT_FALSE(second->is_done());
}

}  // namespace
}  // namespace distag
