// The open calls of one worker at another are bounded: where they are made, and where they are served.
#include <gtest/gtest.h>

#include "rpc_group.h"

namespace distag {
namespace {

using testing::NodeConfig;
using testing::number;
using testing::RpcGroup;

constexpr size_t kMost = 5;

NodeConfig with(CallBounds bounds, uint64_t max_in_flight = RpcConfig{}.max_in_flight) {
  return {60 * kSecond, 5 * kSecond, max_in_flight, bounds};
}
CallBounds made_at_most(size_t made) {
  CallBounds bounds;
  bounds.made = made;
  return bounds;
}
CallBounds served_at_most(size_t served) {
  CallBounds bounds;
  bounds.served = served;
  return bounds;
}

class CallBoundsTest : public ::testing::Test {
 protected:
  void make(const NodeConfig& config) {
    group = std::make_unique<RpcGroup>(3, 1, config);
    for (size_t rank = 0; rank < 3; ++rank) {
      group->rpc(rank).register_function("hold", [this](Invocation& call) { held.push_back(call.defer()); });
      group->rpc(rank).register_function("see", [](Invocation& call) { call.set_result(call.args()[0]); });
    }
    group->begin();
  }
  // Calls of w0 that w1 has begun and not answered.
  std::vector<std::shared_ptr<Future<Value>>> hold(size_t count) {
    std::vector<std::shared_ptr<Future<Value>>> calls;
    for (size_t i = 0; i < count; ++i) calls.push_back(group->start(0, "w1", "hold"));
    EXPECT_TRUE(group->run_until([this, count] { return held.size() == count; }));
    return calls;
  }
  Status status_of_one_more(bool has_time = false) {
    CallRequest request;
    request.to = "w1";
    request.function = "see";
    request.args = {number(1)};
    request.has_time = has_time;
    const auto call = group->rpc(0).call(std::move(request));
    group->await(*call);
    if (call->error() == nullptr) return Status::kOk;
    EXPECT_FALSE(call->error()->may_have_run());
    refusal = call->error()->message();
    return call->error()->status();
  }
  wire::Call forged(uint64_t counter, uint64_t bytes) {
    wire::Call call{{group->node(0).session->self().incarnation, counter}, "see", {number(1)}, kForever, {}, ""};
    call.bytes = bytes;
    return call;
  }

  std::unique_ptr<RpcGroup> group;
  std::vector<std::shared_ptr<PendingReply>> held;
  std::string refusal;
};

TEST_F(CallBoundsTest, OneMoreOpenCallIsRefusedWhereItIsMade) {
  make(with(made_at_most(kMost)));
  const auto calls = hold(kMost);
  const uint64_t served = group->rpc(1).stats().calls_served;
  EXPECT_EQ(status_of_one_more(), Status::kOverloaded);
  EXPECT_EQ(
      refusal,
      "call \"see\" on \"w1\" (rank 1): 5 calls to it are open, and no more may be: wait for the futures of earlier "
      "calls first");
  EXPECT_EQ(status_of_one_more(true), Status::kOverloaded);
  EXPECT_EQ(group->rpc(1).stats().calls_served, served);
  group->call(0, "w2", "see", {number(1)});  // each callee has its own
  held[0]->finish(Value());
  group->await(*calls[0]);
  EXPECT_EQ(status_of_one_more(), Status::kOk);
  calls[1]->cancel();
  const auto fifth = group->start(0, "w1", "hold");
  EXPECT_TRUE(group->run_until([this] { return held.size() == kMost + 1; }));
  EXPECT_EQ(status_of_one_more(), Status::kOk);
}

TEST_F(CallBoundsTest, TheGroupItselfHasRoom) {
  make(with(made_at_most(kMost)));
  const auto calls = hold(kMost);
  std::vector<std::shared_ptr<Future<Value>>> gathered;
  for (size_t rank = 0; rank < 3; ++rank) {
    gathered.push_back(group->node(rank).members.all_gather(number(1), {}, 10 * kSecond));
  }
  for (const auto& values : gathered) {
    group->await(*values);
    EXPECT_EQ(values->error(), nullptr);
  }
}

TEST_F(CallBoundsTest, OneMoreOfACallerIsAnsweredWithThat) {
  make(with(served_at_most(kMost)));
  const auto calls = hold(kMost);
  EXPECT_EQ(status_of_one_more(), Status::kOverloaded);
  EXPECT_EQ(refusal,
            "call \"see\" on \"w1\" (rank 1): worker \"w1\" (rank 1) has 5 calls of this caller open, and takes no "
            "more: wait "
            "for earlier ones first");
  group->call(2, "w1", "see", {number(1)});  // each caller has its own
  held[0]->finish(Value());
  group->await(*calls[0]);
  EXPECT_EQ(status_of_one_more(), Status::kOk);
  EXPECT_EQ(group->rpc(1).stats().calls_open, kMost - 1);
}

// A caller that says nothing of what its requests cost, as those before 0.3, or lies.
TEST_F(CallBoundsTest, BytesOfACallerThatKeepsNoBoundsAreBounded) {
  CallBounds bounds;
  bounds.not_begun = 0;
  constexpr uint64_t kBudget = 10'000;
  make(with(bounds, kBudget));
  size_t refused = 0;
  group->network.set_tap([&refused](const std::string& from, const std::string&, const Frames& frames) {
    if (from != "w1") return;
    const wire::Message message = wire::decode(frames.front(), {frames.begin() + 1, frames.end()}, {});
    const auto* reply = std::get_if<wire::Reply>(&message.body);
    if (reply != nullptr && reply->failed && reply->error.status() == Status::kOverloaded) ++refused;
  });
  const auto deliver = [this](wire::Call call) {
    const Peer from = group->node(0).session->self();
    group->node(1).loop.run([&] {
      wire::Message message{0, 0, {}, std::move(call)};
      EXPECT_EQ(group->node(1).handle(from, message), Heard::kHandled);
    });
  };
  group->call(1, "w0", "see", {number(1)});
  group->node(1).functions.freeze();
  deliver(forged(1, 5 * kBudget));  // alone
  EXPECT_EQ(refused, 0u);
  deliver(forged(2, 1));
  EXPECT_EQ(group->rpc(1).stats().calls_open, 1u);
  EXPECT_EQ(refused, 1u);
  group->node(0).loop.freeze();
  group->node(1).functions.thaw();
  group->scheduler.run_for(kMillisecond);
  group->node(1).functions.freeze();
  for (uint64_t i = 10; i < 14; ++i) deliver(forged(i, kBudget));
  EXPECT_EQ(group->rpc(1).stats().calls_open, 2u);
  EXPECT_EQ(refused, 3u);
}

}  // namespace
}  // namespace distag
