#include <gtest/gtest.h>

#include "rpc_group.h"

namespace distag {
namespace {

using testing::number;
using testing::RpcGroup;

std::vector<ShutdownReport> shut_down(RpcGroup& group, Nanos timeout = 60 * kSecond) {
  std::vector<std::shared_ptr<Future<ShutdownReport>>> futures;
  for (auto& node : group.nodes) futures.push_back(node->shutdown(timeout));
  std::vector<ShutdownReport> reports;
  for (auto& future : futures) {
    group.await(*future);
    reports.push_back(future->value());
  }
  return reports;
}

TEST(Shutdown, OfAnIdleGroupIsCleanAndQuick) {
  for (int32_t size : {1, 2, 5}) {
    RpcGroup group(size);
    group.begin();
    const Nanos begun = group.scheduler.now();
    for (const ShutdownReport& report : shut_down(group)) {
      EXPECT_TRUE(report.clean);
      EXPECT_TRUE(report.missing.empty());
      EXPECT_EQ(report.open_calls, 0);
    }
    EXPECT_LT(group.scheduler.now() - begun, 100 * kMillisecond);
  }
}

TEST(Shutdown, WaitsForTheLastMemberWithoutTraffic) {
  RpcGroup group(3);
  group.begin();
  auto first = group.node(0).shutdown(kForever);
  auto second = group.node(2).shutdown(kForever);
  group.scheduler.run_for(2 * kSecond);
  const uint64_t messages = group.network.traffic().messages;
  group.scheduler.run_for(20 * kSecond);
  EXPECT_FALSE(first->is_done() || second->is_done());
  // Only what keeps the streams alive.
  EXPECT_LT(group.network.traffic().messages - messages, 20u * 8u * 6u);
  group.await(*group.node(1).shutdown(kForever));
  group.await(*first);
  group.await(*second);
  EXPECT_TRUE(first->value().clean);
  EXPECT_TRUE(second->value().clean);
}

TEST(Shutdown, GoesOnServingUntilTheOthersWantItToo) {
  RpcGroup group(2);
  group.rpc(0).register_function("one", [](Invocation& invocation) { invocation.set_result(number(1)); });
  group.begin();
  auto server = group.node(0).shutdown(kForever);
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(group.call(1, "w0", "one").as_int64(), 1);
  EXPECT_FALSE(server->is_done());
  group.await(*group.node(1).shutdown(kForever));
  group.await(*server);
  EXPECT_TRUE(server->value().clean);
}

TEST(Shutdown, WaitsForFunctionsAndForCallsThatTheyMake) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    RpcGroup group(3, seed);
    int depth_reached = 0;
    for (size_t rank = 0; rank < 3; ++rank) {
      group.rpc(rank).register_function("chain", [&group, &depth_reached, rank](Invocation& invocation) {
        const int64_t depth = invocation.args()[0].as_int64();
        depth_reached = std::max(depth_reached, static_cast<int>(depth));
        if (depth == 20) return;
        auto next = group.start(rank, "w" + std::to_string((rank + 1) % 3), "chain", {number(depth + 1)});
        wait(*next, kForever);
        next->value();
      });
    }
    group.begin();
    auto future = group.start(0, "w1", "chain", {number(0)});
    for (const ShutdownReport& report : shut_down(group)) EXPECT_TRUE(report.clean) << "seed " << seed;
    EXPECT_EQ(depth_reached, 20);
    ASSERT_TRUE(future->is_done());
    EXPECT_EQ(future->error(), nullptr);
  }
}

// Calls whose answers no caller waits for, made by functions that return at once.
TEST(Shutdown, WaitsForCallsOnTheirWay) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    RpcGroup group(4, seed);
    int runs = 0;
    for (size_t rank = 0; rank < 4; ++rank) {
      group.rpc(rank).register_function("spread", [&group, &runs, rank](Invocation& invocation) {
        ++runs;
        const int64_t depth = invocation.args()[0].as_int64();
        if (depth == 0) return;
        for (size_t step : {1u, 2u}) {
          group.start(rank, "w" + std::to_string((rank + step) % 4), "spread", {number(depth - 1)});
        }
      });
    }
    group.begin();
    group.start(0, "w3", "spread", {number(5)});
    for (const ShutdownReport& report : shut_down(group)) EXPECT_TRUE(report.clean) << "seed " << seed;
    EXPECT_EQ(runs, 63) << "seed " << seed;
  }
}

TEST(Shutdown, AsksOtherLayersWhetherTheyAreIdle) {
  RpcGroup group(2);
  bool idle = false;
  group.node(1).members.add_idle_check([&idle] { return idle; });
  group.begin();
  auto first = group.node(0).shutdown(kForever);
  auto second = group.node(1).shutdown(kForever);
  group.scheduler.run_for(kSecond);
  EXPECT_FALSE(first->is_done() || second->is_done());
  idle = true;
  group.await(*first);
  group.await(*second);
}

TEST(Shutdown, TheDeadlineNamesWhoDidNotTakePart) {
  RpcGroup group(4);
  group.begin();
  auto first = group.node(0).shutdown(2 * kSecond);
  auto third = group.node(2).shutdown(kSecond);
  group.await(*third);
  EXPECT_FALSE(third->value().clean);
  EXPECT_EQ(third->value().missing, (std::vector<std::string>{"w1", "w3"}));
  group.await(*first);
  EXPECT_EQ(first->value().missing, (std::vector<std::string>{"w1", "w3"}));
}

TEST(Shutdown, WhoseLeaderDoesNotTakePartNamesIt) {
  RpcGroup group(3);
  group.begin();
  auto report = group.node(1).shutdown(kSecond);
  group.await(*report);
  EXPECT_EQ(report->value().missing, (std::vector<std::string>{"w0"}));
}

TEST(Shutdown, WithoutTimeWaitsForNobody) {
  RpcGroup group(3);
  std::shared_ptr<PendingReply> reply;
  group.rpc(1).register_function("hold", [&reply](Invocation& invocation) { reply = invocation.defer(); });
  group.begin();
  auto future = group.start(0, "w1", "hold");
  ASSERT_TRUE(group.run_until([&reply] { return reply != nullptr; }));
  auto report = group.node(0).shutdown(0);
  EXPECT_TRUE(future->is_done());
  EXPECT_EQ(future->error()->status(), Status::kCancelled);
  EXPECT_EQ(future->error()->message(), "call \"hold\" on \"w1\" (rank 1): the worker was shut down");
  EXPECT_TRUE(future->error()->may_have_run());
  const Nanos begun = group.scheduler.now();
  group.await(*report);
  EXPECT_LT(group.scheduler.now() - begun, 10 * kMillisecond);
  EXPECT_FALSE(report->value().clean);
  EXPECT_EQ(report->value().open_calls, 1);
  EXPECT_TRUE(group.run_until([&reply] { return reply->is_cancelled(); }));
}

TEST(Shutdown, TheNextRankLeadsWhenTheLeaderLeaves) {
  RpcGroup group(3);
  group.begin();
  auto second = group.node(1).shutdown(kForever);
  auto third = group.node(2).shutdown(kForever);
  group.scheduler.run_for(kSecond);
  EXPECT_FALSE(second->is_done() || third->is_done());
  group.await(*group.node(0).shutdown(0));
  group.await(*second);
  group.await(*third);
  EXPECT_TRUE(second->value().clean);
  EXPECT_TRUE(third->value().clean);
}

TEST(Shutdown, LeavesOutAWorkerThatDied) {
  for (size_t victim : {0u, 1u, 2u}) {
    RpcGroup group(3);
    group.begin();
    std::vector<std::shared_ptr<Future<ShutdownReport>>> reports;
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank != victim) reports.push_back(group.node(rank).shutdown(60 * kSecond));
    }
    group.scheduler.run_for(kSecond);
    group.network.kill("w" + std::to_string(victim));
    group.node(victim).loop.freeze();
    for (auto& report : reports) {
      group.await(*report);
      EXPECT_FALSE(report->value().clean);
      EXPECT_EQ(report->value().missing, (std::vector<std::string>{"w" + std::to_string(victim)}));
    }
  }
}

TEST(Shutdown, NoFunctionStartsAfterItAndThoseThatRunAreNamed) {
  RpcGroup group(2);
  auto gate = Future<Unit>::make();
  int runs = 0;
  group.rpc(1).register_function("slow", [&](Invocation&) {
    ++runs;
    wait(*gate, kForever);
  });
  group.begin();
  group.start(0, "w1", "slow");
  ASSERT_TRUE(group.run_until([&runs] { return runs == 1; }));
  group.node(1).functions.freeze();
  group.start(0, "w1", "slow");
  group.scheduler.run_for(kSecond);
  group.await(*group.node(1).shutdown(kSecond));
  group.node(1).functions.thaw();
  group.scheduler.run_for(kSecond);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(group.rpc(1).running_functions(), (std::vector<std::string>{"slow"}));
  gate->complete(Unit{});
  EXPECT_TRUE(group.run_until([&group] { return group.rpc(1).running_functions().empty(); }));
}

// The layer above knows no references, and notes the news of those that calls make.
class NotingReferences final : public ReferenceHook {
 public:
  void check(const Value&) const override {}
  void check_made(const Peer&, const Value&) const override {}
  Values on_send(const Peer&, const Values& values) override { return values; }
  Value on_receive(const Peer&, const Value& value) override { return value; }
  void on_creation_queued(const wire::Reference&) override { ++queued; }
  void on_creation_numbered(const wire::Reference&) override { ++numbered; }
  void on_creation_acknowledged(wire::Reference&) override {}
  void on_creation_failed(wire::Reference&, const Peer&, const Error&) override { ++failed; }
  std::shared_ptr<Future<Value>> on_creation(const Peer&, const Id&, const std::string&) override { return nullptr; }
  void when_ready(const Values&, UniqueFunction<void(const Error*)> ready) override { ready(nullptr); }
  Values resolve(const Values& args) const override { return args; }
  std::vector<std::string> leaks() const override { return {}; }

  int queued = 0;
  int numbered = 0;
  int failed = 0;
};

// The hook may be gone when the call ends, and the loop is gone.
TEST(Shutdown, WithoutOneACallThatMakesAValueEndsWithoutItsHook) {
  NotingReferences references;
  std::shared_ptr<Future<Value>> future;
  {
    RpcGroup group(2);
    group.rpc(0).set_reference_hook(&references);
    group.begin();
    group.node(1).loop.freeze();
    CallRequest request;
    request.to = "w1";
    request.function = "make";
    request.keep_as = [](const std::shared_ptr<const Peer>& callee) {
      return std::make_shared<wire::Reference>(Id{1, 1}, callee->incarnation, callee->rank, Id{1, 1});
    };
    future = group.rpc(0).call(std::move(request));
    group.scheduler.run_for(100 * kMillisecond);
    ASSERT_EQ(references.queued, 1);
    ASSERT_EQ(references.numbered, 0);
  }
  ASSERT_NE(future->error(), nullptr);
  EXPECT_EQ(future->error()->status(), Status::kCancelled);
  EXPECT_EQ(references.failed, 0);
}

TEST(Shutdown, ASecondOneHasTheSameReportAndMayBringTheDeadlineForward) {
  RpcGroup group(2);
  group.begin();
  auto first = group.node(0).shutdown(kForever);
  group.scheduler.run_for(kSecond);
  auto second = group.node(0).shutdown(kSecond);
  EXPECT_EQ(first, second);
  const Nanos begun = group.scheduler.now();
  group.await(*first);
  EXPECT_LT(group.scheduler.now() - begun, 2 * kSecond);
  EXPECT_EQ(group.node(0).shutdown(0), first);
}

// w2 asks as if it led, and says that all is quiet; w0, which leads, does not want to stop.
TEST(Shutdown, AVoteOfOneThatDoesNotLeadEndsNobody) {
  RpcGroup group(3);
  group.begin();
  const auto left = group.node(1).shutdown(kForever);
  group.scheduler.run_for(100 * kMillisecond);
  const Incarnation asked = group.node(1).session->self().incarnation;
  const uint64_t refused = group.node(1).session->stats().messages_refused;
  testing::RpcNode& liar = group.node(2);
  liar.loop.run([&] {
    liar.session->send(asked, wire::ShutdownPoll{7, {}});
    liar.session->send(asked, wire::ShutdownVerdict{7});
  });
  group.scheduler.run_for(kSecond);
  EXPECT_FALSE(left->is_done());
  EXPECT_EQ(group.node(1).session->stats().messages_refused, refused + 1);
  const auto first = group.node(0).shutdown(kForever);
  const auto last = group.node(2).shutdown(kForever);
  group.await(*left);
  group.await(*first);
  group.await(*last);
  EXPECT_TRUE(left->value().clean);
}

}  // namespace
}  // namespace distag
