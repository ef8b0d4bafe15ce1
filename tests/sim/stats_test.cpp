// Every counter of a worker moves by exactly what happened.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "ops/builtins.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

// Two workers; "held" on w1 keeps its answers back.
class StatsTest : public ::testing::Test {
 protected:
  StatsTest() : group_(1, {}) {
    Rpc& rpc = group_.worker(1).rpc();
    rpc.register_function("echo", [](Invocation& invocation) { invocation.set_result(invocation.args().at(0)); });
    rpc.register_function("refuse", [](Invocation&) { throw Error(static_cast<Status>(1001), "no"); });
    rpc.register_function("held", [this](Invocation& invocation) { replies_.push_back(invocation.defer()); });
    group_.network().set_tap([this](const std::string& from, const std::string&, const Frames& frames) {
      for (const Frame& frame : frames) bytes_from_[from] += frame.size();
    });
    group_.start();
  }

  WorkerStats stats(int32_t rank) {
    WorkerStats stats = group_.worker(rank).stats();
    const auto fresh = group_.worker(rank).fetch_loop_stats();
    wait(*fresh, kForever);
    stats.session = fresh->value().session;
    stats.requests = fresh->value().requests;
    return stats;
  }
  std::shared_ptr<Future<Value>> begin_call(const std::string& function) {
    CallRequest request;
    request.to = "w1";
    request.function = function;
    request.args = {Value(int64_t{1})};
    return group_.worker(0).rpc().call(std::move(request));
  }
  Value echo(Value value, const Id& context = {}) { return group_.call(0, 1, "echo", {std::move(value)}, context); }
  void settle(Nanos time = kSecond) { group_.scheduler().run_for(time); }

  std::vector<std::shared_ptr<PendingReply>> replies_;
  std::map<std::string, uint64_t> bytes_from_;
  SimWorkerGroup group_;
};

TEST_F(StatsTest, CallsMadeServedFailedAndOpen) {
  for (int i = 0; i < 3; ++i) echo(Value(int64_t{i}));
  for (int i = 0; i < 2; ++i) {
    const auto refused = begin_call("refuse");
    wait(*refused, kForever);
    EXPECT_NE(refused->error(), nullptr);
  }
  const auto open = begin_call("held");
  settle();
  const RpcStats caller = stats(0).rpc;
  const RpcStats callee = stats(1).rpc;
  EXPECT_EQ(caller.calls_made, 6u);
  EXPECT_EQ(caller.calls_served, 0u);
  EXPECT_EQ(caller.calls_failed, 2u);
  EXPECT_EQ(caller.calls_open, 1u);
  EXPECT_EQ(caller.futures_open, 1u);
  EXPECT_EQ(callee.calls_made, 0u);
  EXPECT_EQ(callee.calls_served, 6u);
  EXPECT_EQ(callee.calls_failed, 0u);
  EXPECT_EQ(callee.calls_open, 1u);
  EXPECT_EQ(callee.futures_open, 0u);
  replies_.at(0)->finish(Value());
  wait(*open, kForever);
  EXPECT_EQ(stats(0).rpc.calls_open + stats(0).rpc.futures_open + stats(1).rpc.calls_open, 0u);
}

TEST_F(StatsTest, ACallThatIsCancelledBeforeItsTurnFails) {
  begin_call("held")->cancel();
  settle();
  EXPECT_EQ(stats(0).rpc.calls_made, 1u);
  EXPECT_EQ(stats(0).rpc.calls_failed, 1u);
  EXPECT_EQ(stats(1).rpc.calls_open, 0u);
}

TEST_F(StatsTest, ACancelledCallFailsAndIsOpenNoMore) {
  const auto call = begin_call("held");
  settle();
  call->cancel();
  settle();
  EXPECT_EQ(stats(0).rpc.calls_failed, 1u);
  EXPECT_EQ(stats(0).rpc.calls_open + stats(0).rpc.futures_open + stats(1).rpc.calls_open, 0u);
}

TEST_F(StatsTest, ContextsAndPasses) {
  Tensor leaf = Tensor::scalar(Dtype::kFloat64, 2);
  autograd::set_requires_grad(leaf, true);
  auto context = group_.worker(0).dautograd().create_context();
  auto other = group_.worker(0).dautograd().create_context();
  EXPECT_EQ(stats(0).dautograd.contexts, 2u);
  EXPECT_EQ(stats(1).dautograd.contexts, 0u);
  const Tensor root = echo(Value(leaf), context->global_id()).as_tensor();
  EXPECT_EQ(stats(1).dautograd.contexts, 1u);
  context->backward({root}, {});
  EXPECT_THROW(context->backward({root}, {}), Error);  // the graph is gone
  settle();
  for (int32_t rank = 0; rank < 2; ++rank) {
    const DautogradStats seen = stats(rank).dautograd;
    EXPECT_EQ(seen.passes_run, 2u) << "w" << rank;
    EXPECT_EQ(seen.passes_failed, 1u) << "w" << rank;
    EXPECT_EQ(seen.passes_open, 0u) << "w" << rank;
  }
  context.reset();
  settle();
  EXPECT_EQ(stats(0).dautograd.contexts, 1u);
  EXPECT_EQ(stats(1).dautograd.contexts, 0u);
  other.reset();
  settle();
  EXPECT_EQ(stats(0).dautograd.contexts, 0u);
}

TEST_F(StatsTest, APassIsOpenUntilItsVerdict) {
  Tensor leaf = Tensor::scalar(Dtype::kFloat64, 2);
  autograd::set_requires_grad(leaf, true);
  const auto context = group_.worker(0).dautograd().create_context();
  const Tensor root = echo(Value(leaf), context->global_id()).as_tensor();
  group_.freeze(1);
  const auto pass = context->backward_async({root}, {});
  settle();
  EXPECT_EQ(stats(0).dautograd.passes_open, 1u);
  EXPECT_EQ(stats(0).dautograd.passes_run, 1u);
  group_.thaw(1);
  wait(*pass, kForever);
  settle();
  EXPECT_EQ(stats(0).dautograd.passes_open + stats(1).dautograd.passes_open, 0u);
}

TEST_F(StatsTest, BytesAreThoseOnTheNetwork) {
  for (int i = 0; i < 10; ++i) echo(Value::text(std::string(1000, 'x')));
  settle(10 * kMillisecond);  // between two pings
  const SessionStats a = stats(0).session;
  const SessionStats b = stats(1).session;
  EXPECT_GT(a.bytes_sent, 10000u);
  EXPECT_EQ(a.bytes_sent + b.bytes_sent, bytes_from_["w0"] + bytes_from_["w1"]);
  EXPECT_EQ(a.bytes_received, b.bytes_sent);
  EXPECT_EQ(b.bytes_received, a.bytes_sent);
  EXPECT_EQ(a.bytes_in_flight + b.bytes_in_flight, 0u);
  EXPECT_EQ(a.peers_connected, 1u);
  EXPECT_EQ(b.peers_connected, 1u);
}

TEST_F(StatsTest, WhatIsNotAcknowledgedIsInFlightAndReplayedAfterACut) {
  echo(Value(int64_t{1}));
  settle(10 * kMillisecond);
  const uint64_t before = bytes_from_["w0"];
  const uint64_t served = stats(1).rpc.calls_served;
  group_.network().part("w0", "w1");
  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(begin_call("echo"));
  settle(10 * kMillisecond);
  EXPECT_EQ(stats(0).session.bytes_in_flight, bytes_from_["w0"] - before);
  EXPECT_EQ(stats(0).session.messages_replayed, 0u);
  group_.network().cut_all();
  settle(10 * kMillisecond);
  const uint64_t arrived = stats(1).rpc.calls_served - served;  // a first part may have come through
  group_.network().join("w0", "w1");
  for (const auto& call : calls) wait(*call, kForever);
  settle(10 * kMillisecond);
  EXPECT_EQ(stats(0).session.messages_replayed, 3 - arrived);
  EXPECT_EQ(stats(1).session.messages_duplicated, 0u);
  EXPECT_EQ(stats(1).rpc.calls_served - served, 3u);
  EXPECT_EQ(stats(0).session.bytes_in_flight, 0u);
  EXPECT_EQ(stats(0).session.peers_lost, 0u);
}

TEST_F(StatsTest, AFencedPeerIsLostOnce) {
  echo(Value(int64_t{1}));
  group_.kill(1);
  settle(20 * kSecond);
  const SessionStats seen = stats(0).session;
  EXPECT_EQ(seen.peers_lost, 1u);
  EXPECT_EQ(seen.peers_connected, 0u);
  EXPECT_EQ(seen.bytes_in_flight, 0u);
}

}  // namespace
}  // namespace distag::sim
