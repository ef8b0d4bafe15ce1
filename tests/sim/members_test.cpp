// Workers that join a running group and workers that come back, over streams that drop, with the news that every member
// is told.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

void register_functions(SimWorkerGroup& group, int32_t rank) {
  Rpc& rpc = group.worker(rank).rpc();
  rpc.register_function(
      "double", [](Invocation& invocation) { invocation.set_result(Value(2 * invocation.args().at(0).as_int64())); });
  rpc.register_function("square", [](Invocation& invocation) {
    const Tensor x = invocation.args().at(0).as_tensor();
    invocation.set_result(Value(autograd::apply(ops::kMul, std::vector<Tensor>{x, x}, {})[0]));
  });
  // Calls "square" of another worker: rank, argument.
  rpc.register_function("relay", [&group, rank](Invocation& invocation) {
    const auto to = static_cast<int32_t>(invocation.args().at(0).as_int64());
    invocation.set_result(group.call(rank, to, "square", {invocation.args().at(1)}, invocation.context()));
  });
}

void register_all(SimWorkerGroup& group) {
  for (int32_t rank = 0; rank < group.size(); ++rank) register_functions(group, rank);
}

int64_t doubled(SimWorkerGroup& group, int32_t from, int32_t to, int64_t number) {
  return group.call(from, to, "double", {Value(number)}).as_int64();
}

template <typename Code>
Error error_of(Code&& code) {
  try {
    code();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "it did not fail";
  return Error();
}

void start(Worker& worker) {
  auto started = worker.start(60 * kSecond);
  wait(*started, kForever);
  started->value();
}

ShutdownReport leave(Worker& worker, Nanos timeout = 60 * kSecond) {
  auto report = worker.shutdown(timeout);
  wait(*report, kForever);
  return report->value();
}

Tensor leaf(double value) {
  Tensor tensor = Tensor::scalar(Dtype::kFloat64, value);
  autograd::set_requires_grad(tensor, true);
  return tensor;
}

struct World {
  const char* name;
  bool is_open;
  const char* rendezvous;
};

// In static and open worlds alike, a worker is killed by SIGKILL and started again under the same name and rank.
class ReturnTest : public testing::TestWithParam<World> {
 protected:
  static SimGroupOptions options(int32_t size = 3) {
    SimGroupOptions made;
    made.size = size;
    made.is_open = GetParam().is_open;
    made.rendezvous = GetParam().rendezvous;
    return made;
  }
};

TEST_P(ReturnTest, AKilledWorkerComesBackAndIsCalledByItsName) {
  for_each_seed(30, [](uint64_t seed) {
    SimGroupOptions faulty = options();
    faulty.faults.drop = seed % 3 == 0 ? 0.03 : 0;
    SimWorkerGroup group(seed, faulty);
    register_all(group);
    group.start();
    EXPECT_EQ(doubled(group, 0, 1, 21), 42);
    group.kill(1);
    if (seed % 2 == 0) {  // whether its loss is seen before it is back, or not
      const Error error = error_of([&group] { doubled(group, 0, 1, 1); });
      EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();
    }
    Worker& again = group.restart(1);
    register_functions(group, 1);
    start(again);
    EXPECT_EQ(again.rank(), 1);
    EXPECT_EQ(again.name(), "w1");
    for (int32_t other : {0, 2}) {
      EXPECT_EQ(doubled(group, other, 1, 4), 8);
      EXPECT_EQ(doubled(group, 1, other, 5), 10);
    }
    EXPECT_EQ(group.worker(0).world_size(), 3);
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

TEST_P(ReturnTest, WhatTheOldIncarnationWasAskedAnswersThatItRestarted) {
  for_each_seed(20, [](uint64_t seed) {
    SimWorkerGroup group(seed, options());
    register_all(group);
    auto never = Future<Unit>::make();
    group.worker(1).rpc().register_function("hang", [never](Invocation&) { wait(*never, kForever); });
    group.start();
    CallRequest request;
    request.to = "w1";
    request.function = "hang";
    auto open = group.worker(0).rpc().call(std::move(request));
    // The sockets of the old process hang, so that only its return shows its end.
    group.scheduler().run_for(10 * kMillisecond);
    group.freeze(1);
    Worker& again = group.restart(1);
    register_functions(group, 1);
    start(again);
    wait(*open, kForever);
    ASSERT_NE(open->error(), nullptr);
    EXPECT_TRUE(open->error()->status() == Status::kPeerRestarted || open->error()->status() == Status::kDisconnected)
        << open->error()->message();
    EXPECT_TRUE(open->error()->may_have_run());
    EXPECT_EQ(doubled(group, 0, 1, 3), 6);
  });
}

TEST_P(ReturnTest, ContextsOfTheOldIncarnationAnswerThatItRestarted) {
  for_each_seed(10, [](uint64_t seed) {
    SimWorkerGroup group(seed, options());
    register_all(group);
    group.start();
    // A context that worker 1 made, with a handle on worker 0, and a context of worker 0 that worker 1 takes part in.
    auto theirs = group.worker(1).dautograd().create_context();
    const Id id = theirs->global_id();
    group.call(1, 0, "square", {Value(leaf(3))}, id);
    auto handle = group.worker(0).dautograd().find_context(id);
    auto ours = group.worker(0).dautograd().create_context();
    const Tensor loss = group.call(0, 1, "square", {Value(leaf(3))}, ours->global_id()).as_tensor();

    group.kill(1);
    ASSERT_TRUE(group.scheduler().run_until([&group] { return group.worker(0).stats().dautograd.contexts == 1; },
                                            60 * kSecond));
    Error error = error_of([&] { handle->gradients(); });
    EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();

    Worker& again = group.restart(1);
    register_functions(group, 1);
    start(again);
    error = error_of([&] { handle->gradients(); });
    EXPECT_EQ(error.status(), Status::kPeerRestarted) << error.message();
    EXPECT_NE(error.message().find("\"w1\""), std::string::npos) << error.message();
    error = error_of([&] { group.call(0, 2, "double", {Value(int64_t{1})}, id); });
    EXPECT_EQ(error.status(), Status::kPeerRestarted) << error.message();
    error = error_of([&] { ours->backward({loss}, {}); });
    EXPECT_EQ(error.status(), Status::kPeerRestarted) << error.message();
    // A new context with the new incarnation works.
    auto fresh = group.worker(0).dautograd().create_context();
    const Tensor x = leaf(3);
    const Tensor y = group.call(0, 1, "square", {Value(x)}, fresh->global_id()).as_tensor();
    fresh->backward({y}, {});
    theirs.reset();
  });
}

TEST_P(ReturnTest, ReferencesToValuesOfTheOldIncarnationAnswerThatItRestarted) {
  for_each_seed(10, [](uint64_t seed) {
    SimWorkerGroup group(seed, options());
    register_all(group);
    group.start();
    CallRequest request;
    request.to = "w1";
    request.function = "double";
    request.args = {Value(int64_t{4})};
    const auto reference = group.worker(0).rrefs().remote(std::move(request));
    auto fetch = [&group, &reference] {
      auto value = group.worker(0).rrefs().fetch(reference, {});
      wait(*value, kForever);
      return value->value();
    };
    EXPECT_EQ(fetch().as_int64(), 8);
    group.kill(1);
    EXPECT_EQ(error_of(fetch).status(), Status::kDisconnected);
    Worker& again = group.restart(1);
    register_functions(group, 1);
    start(again);
    const Error error = error_of(fetch);
    EXPECT_EQ(error.status(), Status::kPeerRestarted) << error.message();
  });
}

TEST_P(ReturnTest, AWorkerComesBackAgainAndAgain) {
  for_each_seed(5, [](uint64_t seed) {
    SimWorkerGroup group(seed, options(4));
    register_all(group);
    group.start();
    for (int round = 0; round < 5; ++round) {
      const int32_t rank = 1 + round % 3;
      Worker& again = group.restart(rank);
      register_functions(group, rank);
      start(again);
      for (int32_t from = 0; from < 4; ++from) {
        for (int32_t to = 0; to < 4; ++to) EXPECT_EQ(doubled(group, from, to, 7), 14);
      }
    }
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

// Others may have met the worker whose start was cancelled. If rank 0 serves a tcp rendezvous, its cancel ends that:
// workers that had met there come to no other one.
TEST_P(ReturnTest, AStartMayBeCancelledAtAnyMomentAndMadeAgain) {
  for_each_seed(200, [](uint64_t seed) {
    SimWorkerGroup group(seed, options());
    register_all(group);
    const int32_t rank = std::string(GetParam().rendezvous).starts_with("tcp://") ? 1 : 0;
    auto cancelled = group.worker(rank).start(60 * kSecond);
    auto second = group.worker(1 - rank).start(60 * kSecond);
    auto third = group.worker(2).start(60 * kSecond);
    group.scheduler().run_for(group.scheduler().between(0, 2 * kMillisecond));
    cancelled->cancel();
    wait(*cancelled, kForever);
    if (cancelled->error() != nullptr) {
      EXPECT_EQ(cancelled->error()->status(), Status::kCancelled);
      start(group.worker(rank));
    }
    for (auto* future : {&second, &third}) {
      wait(**future, kForever);
      (*future)->value();
    }
    for (int32_t from = 0; from < 3; ++from) {
      for (int32_t to = 0; to < 3; ++to) EXPECT_EQ(doubled(group, from, to, 7), 14);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, ReturnTest,
                         testing::Values(World{"Static", false, "inproc://simulation"},
                                         World{"Open", true, "inproc://simulation"},
                                         World{"StaticByTcp", false, "tcp://w0:29500"},
                                         World{"OpenByTcp", true, "tcp://w0:29500"}),
                         [](const auto& world) { return std::string(world.param.name); });

SimGroupOptions open_world(int32_t size) {
  SimGroupOptions options;
  options.size = size;
  options.is_open = true;
  return options;
}

TEST(OpenWorldTest, WhoHasStartedIsKnownToAll) {
  for_each_seed(20, [](uint64_t seed) {
    SimGroupOptions options = open_world(5);
    options.faults.drop = seed % 2 == 0 ? 0.03 : 0;
    SimWorkerGroup group(seed, options);
    register_all(group);
    for (int32_t rank = 0; rank < 5; ++rank) {
      EXPECT_EQ(group.worker(rank).world_size(), 0);
      start(group.worker(rank));
      for (int32_t other = 0; other <= rank; ++other) {
        EXPECT_EQ(group.worker(other).world_size(), rank + 1);
        EXPECT_EQ(doubled(group, other, rank, 2), 4);
        EXPECT_EQ(doubled(group, rank, other, 3), 6);
      }
    }
  });
}

TEST(OpenWorldTest, WhoJoinsAtOnceMeets) {
  for_each_seed(20, [](uint64_t seed) {
    SimWorkerGroup group(seed, open_world(6));
    register_all(group);
    group.start();
    ASSERT_TRUE(group.scheduler().run_until(
        [&group] {
          bool all = true;
          for (int32_t rank = 0; rank < 6; ++rank) all = all && group.worker(rank).world_size() == 6;
          return all;
        },
        10 * kSecond));
    for (int32_t rank = 0; rank < 6; ++rank) EXPECT_EQ(doubled(group, rank, (rank + 1) % 6, 2), 4);
  });
}

// The third worker hears of the first one's context from the second, having joined before all others or after them.
TEST(OpenWorldTest, AContextReachesThoseWhoMetItsCreatorLate) {
  for_each_seed(20, [](uint64_t seed) {
    SimWorkerGroup group(seed, open_world(3));
    register_all(group);
    const int32_t newcomer = static_cast<int32_t>(seed % 3);
    for (int32_t rank = 0; rank < 3; ++rank) {
      if (rank != newcomer) start(group.worker(rank));
    }
    start(group.worker(newcomer));
    const int32_t middle = (newcomer + 1) % 3;
    const int32_t last = (newcomer + 2) % 3;
    auto context = group.worker(newcomer).dautograd().create_context();
    const Tensor x = leaf(3);
    const Tensor y =
        group.call(newcomer, middle, "relay", {Value(int64_t{last}), Value(x)}, context->global_id()).as_tensor();
    context->backward({y}, {});
  });
}

TEST(OpenWorldTest, OneLeavesAloneAndTheOthersGoOn) {
  for_each_seed(20, [](uint64_t seed) {
    SimWorkerGroup group(seed, open_world(3));
    register_all(group);
    group.start();
    EXPECT_EQ(doubled(group, 0, 1, 2), 4);
    const Nanos begin = group.scheduler().now();
    const ShutdownReport report = leave(group.worker(1));
    EXPECT_TRUE(report.clean);
    EXPECT_EQ(report.missing, std::vector<std::string>());
    EXPECT_LT(group.scheduler().now() - begin, kSecond);
    ASSERT_TRUE(group.scheduler().run_until(
        [&group] { return group.worker(0).world_size() == 2 && group.worker(2).world_size() == 2; }, kSecond));
    const Error error = error_of([&group] { doubled(group, 0, 1, 1); });
    EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();
    EXPECT_NE(error.message().find("has left the group"), std::string::npos) << error.message();
    EXPECT_EQ(doubled(group, 0, 2, 2), 4);
    Worker& again = group.restart(1);
    register_functions(group, 1);
    start(again);
    EXPECT_EQ(doubled(group, 0, 1, 2), 4);
    EXPECT_EQ(group.worker(2).world_size(), 3);
  });
}

TEST(OpenWorldTest, WhoLeavesEndsWhatRunsAndRefusesWhatIsNew) {
  for_each_seed(10, [](uint64_t seed) {
    SimWorkerGroup group(seed, open_world(3));
    register_all(group);
    auto begun = Future<Unit>::make();
    auto go_on = Future<Unit>::make();
    group.worker(1).rpc().register_function("slow", [begun, go_on](Invocation& invocation) {
      begun->complete(Unit{});
      wait(*go_on, kForever);
      invocation.set_result(Value(int64_t{5}));
    });
    group.start();
    CallRequest request;
    request.to = "w1";
    request.function = "slow";
    auto running = group.worker(0).rpc().call(std::move(request));
    wait(*begun, kForever);
    auto report = group.worker(1).shutdown(60 * kSecond);
    group.scheduler().run_for(kSecond);
    EXPECT_FALSE(report->is_done());
    const Error refused = error_of([&group] { doubled(group, 2, 1, 1); });
    EXPECT_EQ(refused.status(), Status::kDisconnected) << refused.message();
    EXPECT_NE(refused.message().find("is leaving the group"), std::string::npos) << refused.message();
    EXPECT_FALSE(refused.may_have_run());
    go_on->complete(Unit{});
    wait(*running, kForever);
    EXPECT_EQ(running->value().as_int64(), 5);
    wait(*report, kForever);
    EXPECT_TRUE(report->value().clean);
  });
}

TEST(OpenWorldTest, AtItsDeadlineItLeavesWithWhatIsOpen) {
  SimWorkerGroup group(1, open_world(2));
  register_all(group);
  auto never = Future<Unit>::make();
  group.worker(1).rpc().register_function("hang", [never](Invocation&) { wait(*never, kForever); });
  group.start();
  CallRequest request;
  request.to = "w1";
  request.function = "hang";
  auto open = group.worker(0).rpc().call(std::move(request));
  const Nanos begin = group.scheduler().now();
  const ShutdownReport report = leave(group.worker(0), 2 * kSecond);
  EXPECT_LT(group.scheduler().now() - begin, 3 * kSecond);
  EXPECT_FALSE(report.clean);
  EXPECT_EQ(report.open_calls, 1);
  ASSERT_NE(open->error(), nullptr);
  EXPECT_EQ(open->error()->status(), Status::kCancelled);
  never->complete(Unit{});
}

TEST(OpenWorldTest, AMemberThatDiedUnseenDelaysNobodyForLong) {
  for_each_seed(10, [](uint64_t seed) {
    SimWorkerGroup group(seed, open_world(4));
    register_all(group);
    for (int32_t rank = 0; rank < 3; ++rank) start(group.worker(rank));
    group.kill(2);
    const Nanos begin = group.scheduler().now();
    start(group.worker(3));
    EXPECT_LT(group.scheduler().now() - begin, 2 * kSecond);
    EXPECT_EQ(doubled(group, 3, 0, 2), 4);
    EXPECT_EQ(group.worker(3).world_size(), 3);
  });
}

// The news of each member that each worker hears, in order.
TEST(MemberNewsTest, TellsOfEveryChangeInOrder) {
  for_each_seed(20, [](uint64_t seed) {
    std::map<std::string, std::string> told;
    SimGroupOptions options = open_world(3);
    options.on_member = [&told](int32_t rank, const MemberRecord& member) {
      told[fmt::format("{} of {}", SimWorkerGroup::name(rank), member.peer.name)] +=
          fmt::format("{}{} ", member.peer.generation, "?+-x"[static_cast<size_t>(member.state)]);
    };
    SimWorkerGroup group(seed, options);
    register_all(group);
    group.start();
    Worker& again = group.restart(1);
    register_functions(group, 1);
    start(again);
    EXPECT_TRUE(leave(group.worker(2)).clean);
    group.scheduler().run_for(kSecond);
    EXPECT_EQ(told["w0 of w0"], "1+ ");
    EXPECT_EQ(told["w0 of w1"], "1+ 1x 2+ ");
    EXPECT_EQ(told["w0 of w2"], "1+ 1- ");
    EXPECT_EQ(told["w2 of w2"], "1+ ") << "nothing of its own end";
    const auto before = told;
    EXPECT_TRUE(leave(group.worker(0)).clean);
    const auto after_leaving = told["w0 of w1"];
    leave(group.worker(1));
    group.scheduler().run_for(kSecond);
    EXPECT_EQ(told["w0 of w1"], after_leaving);
    EXPECT_EQ(told["w0 of w0"], before.at("w0 of w0"));
  });
}

TEST(MemberNewsTest, MayCallBackIntoTheWorker) {
  int64_t answer = 0;
  SimWorkerGroup* self = nullptr;
  SimGroupOptions options = open_world(2);
  options.on_member = [&](int32_t rank, const MemberRecord& member) {
    if (rank == 0 && member.peer.name == "w1") answer = doubled(*self, 0, 1, 21);
  };
  SimWorkerGroup group(1, options);
  self = &group;
  register_all(group);
  start(group.worker(0));
  start(group.worker(1));
  ASSERT_TRUE(group.scheduler().run_until([&answer] { return answer == 42; }, 10 * kSecond));
}

// There may be 65,536 contexts: a task of the loop ends 64 of them, and other tasks get their turn in between.
TEST(Members, TheContextsOfOneThatLeavesEndInSlices) {
  SimGroupOptions options;
  options.size = 2;
  SimWorkerGroup group(1, options);
  group.worker(0).rpc().register_function("hear", [](Invocation&) {});
  group.start();
  std::vector<std::shared_ptr<Context>> contexts;
  for (int i = 0; i < 200; ++i) {
    contexts.push_back(group.worker(1).dautograd().create_context());
    group.call(1, 0, "hear", {}, contexts.back()->global_id());
  }
  const auto held = [&group] { return group.worker(0).stats().dautograd.contexts; };
  ASSERT_EQ(held(), 200u);
  const auto left = group.worker(1).shutdown(0);
  for (const uint64_t rest : {136u, 72u, 8u, 0u}) {
    ASSERT_TRUE(group.scheduler().run_until([&held, before = held()] { return held() != before; }, 10 * kSecond));
    EXPECT_EQ(held(), rest);
  }
  wait(*left, kForever);
}

}  // namespace
}  // namespace distag::sim
