// Whole workers on the simulator: calls over streams that drop, hosts that stop, die and come back to life.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

SimGroupOptions options_for(int32_t size) {
  SimGroupOptions options;
  options.size = size;
  return options;
}

// The error that the call fails with.
Error failure_of(SimWorkerGroup& group, int32_t from, int32_t to, const std::string& function) {
  try {
    group.call(from, to, function, {});
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "the call did not fail";
  return Error();
}

// "double"(n) = 2 n on every worker.
void register_double(SimWorkerGroup& group) {
  for (int32_t rank = 0; rank < group.size(); ++rank) {
    group.worker(rank).rpc().register_function(
        "double", [](Invocation& invocation) { invocation.set_result(Value(2 * invocation.args().at(0).as_int64())); });
  }
}

TEST(SimGroupTest, EveryoneCallsEveryone) {
  for_each_seed(20, [](uint64_t seed) {
    SimWorkerGroup group(seed, options_for(1 + static_cast<int32_t>(seed % 5)));
    register_double(group);
    group.start();
    for (int32_t from = 0; from < group.size(); ++from) {
      for (int32_t to = 0; to < group.size(); ++to) {
        EXPECT_EQ(group.call(from, to, "double", {Value(int64_t{21})}).as_int64(), 42);
      }
    }
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

TEST(SimGroupTest, CallsNestBackAndForth) {
  for_each_seed(10, [](uint64_t seed) {
    SimWorkerGroup group(seed, options_for(2));
    for (int32_t rank = 0; rank < 2; ++rank) {
      group.worker(rank).rpc().register_function("descend", [&group, rank](Invocation& invocation) {
        const int64_t depth = invocation.args().at(0).as_int64();
        const int64_t below = depth == 0 ? 0 : group.call(rank, 1 - rank, "descend", {Value(depth - 1)}).as_int64() + 1;
        invocation.set_result(Value(below));
      });
    }
    group.start();
    EXPECT_EQ(group.call(0, 1, "descend", {Value(int64_t{200})}).as_int64(), 200);
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

TEST(SimGroupTest, EachCallRunsOnceHoweverOftenConnectionsDrop) {
  for_each_seed(100, [](uint64_t seed) {
    SimGroupOptions options = options_for(3);
    options.faults.drop = 0.05;
    options.faults.would_block = 0.05;
    SimWorkerGroup group(seed, options);
    std::map<int64_t, int> runs;
    for (int32_t rank = 0; rank < 3; ++rank) {
      group.worker(rank).rpc().register_function("once", [&runs](Invocation& invocation) {
        ++runs[invocation.args().at(0).as_int64()];
        invocation.set_result(invocation.args().at(0));
      });
    }
    group.start();
    std::vector<std::shared_ptr<Future<Value>>> answers;
    for (int64_t number = 0; number < 60; ++number) {
      CallRequest request;
      request.to = SimWorkerGroup::name(static_cast<int32_t>(number / 3 % 3));
      request.function = "once";
      request.args = {Value(number)};
      answers.push_back(group.worker(static_cast<int32_t>(number % 3)).rpc().call(std::move(request)));
      if (number % 20 == 19) group.network().cut_all();
    }
    for (int64_t number = 0; number < 60; ++number) {
      auto& answer = answers[static_cast<size_t>(number)];
      wait(*answer, kForever);
      EXPECT_EQ(answer->value().as_int64(), number);
      EXPECT_EQ(runs[number], 1) << "call " << number;
    }
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

TEST(SimGroupTest, AKilledWorkerIsNamedByTheCallsThatNeedIt) {
  for_each_seed(30, [](uint64_t seed) {
    SimWorkerGroup group(seed, options_for(3));
    auto begun = Future<Unit>::make();
    auto never = Future<Unit>::make();
    group.worker(1).rpc().register_function("hang", [begun, never](Invocation&) {
      begun->complete(Unit{});
      wait(*never, kForever);
    });
    register_double(group);
    group.start();
    auto killed = group.scheduler().spawn([&group, begun] {
      wait(*begun, kForever);
      group.kill(1);
    });
    const Nanos begin = group.scheduler().now();
    const Error error = failure_of(group, 0, 1, "hang");
    EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();
    EXPECT_NE(error.message().find("\"w1\""), std::string::npos) << error.message();
    EXPECT_TRUE(error.may_have_run());
    EXPECT_LT(group.scheduler().now() - begin, 2 * kSecond);
    EXPECT_TRUE(wait(*killed, kForever));
    EXPECT_EQ(group.call(0, 2, "double", {Value(int64_t{4})}).as_int64(), 8);
    EXPECT_EQ(group.shutdown().size(), 2u);
  });
}

TEST(SimGroupTest, ASilentWorkerIsFencedAfterItsLease) {
  for_each_seed(10, [](uint64_t seed) {
    SimWorkerGroup group(seed, options_for(2));
    register_double(group);
    group.start();
    EXPECT_EQ(group.call(0, 1, "double", {Value(int64_t{4})}).as_int64(), 8);
    group.network().part("w0", "w1");
    const Nanos begin = group.scheduler().now();
    const Error error = failure_of(group, 0, 1, "double");
    EXPECT_EQ(error.status(), Status::kDisconnected) << error.message();
    EXPECT_GE(group.scheduler().now() - begin, 2 * kSecond);
    EXPECT_LE(group.scheduler().now() - begin, 12 * kSecond);
    group.network().join("w0", "w1");
    // The loss is mutual and final: the other side learns of it too.
    const Error back = failure_of(group, 1, 0, "double");
    EXPECT_EQ(back.status(), Status::kDisconnected) << back.message();
  });
}

TEST(SimGroupTest, WhoBreaksTheProtocolIsLostForThat) {
  for_each_seed(10, [](uint64_t seed) {
    SimWorkerGroup group(seed, options_for(3));
    auto begun = Future<Unit>::make();
    auto never = Future<Unit>::make();
    group.worker(1).rpc().register_function("hang", [begun, never](Invocation&) {
      begun->complete(Unit{});
      wait(*never, kForever);
    });
    register_double(group);
    group.start();
    auto rogue = group.scheduler().spawn([&group, begun] {
      wait(*begun, kForever);
      // The rogue cancels a call that is not its own.
      group.loop(1).post_or_drop([&group] {
        const Incarnation victim = group.worker(0).group().membership().find_by_rank(0)->peer.incarnation;
        group.worker(1).group().session().send(victim, wire::Cancel{{victim, 1}});
      });
    });
    const Error error = failure_of(group, 0, 1, "hang");
    EXPECT_EQ(error.status(), Status::kProtocol) << error.message();
    EXPECT_NE(error.message().find("it broke the protocol: worker \"w1\" (rank 1) cancels"), std::string::npos)
        << error.message();
    EXPECT_TRUE(wait(*rogue, kForever));
    EXPECT_EQ(failure_of(group, 0, 1, "double").status(), Status::kProtocol);
    EXPECT_EQ(group.call(0, 2, "double", {Value(int64_t{4})}).as_int64(), 8);
  });
}

TEST(SimGroupTest, AShortPauseOfAWorkerIsNoLoss) {
  for_each_seed(10, [](uint64_t seed) {
    SimWorkerGroup group(seed, options_for(2));
    register_double(group);
    group.start();
    EXPECT_EQ(group.call(0, 1, "double", {Value(int64_t{4})}).as_int64(), 8);
    group.freeze(1);
    group.scheduler().run_for(3 * kSecond);
    group.thaw(1);
    EXPECT_EQ(group.call(0, 1, "double", {Value(int64_t{5})}).as_int64(), 10);
    EXPECT_EQ(group.call(1, 0, "double", {Value(int64_t{6})}).as_int64(), 12);
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

TEST(SimGroupTest, LastWordsGoOnceAWorkerEndsByTheRules) {
  for_each_seed(5, [](uint64_t seed) {
    using Hosts = std::set<std::string>;
    SimWorkerGroup group(seed, options_for(3));
    register_double(group);
    group.start();
    group.kill(2);
    EXPECT_EQ(failure_of(group, 0, 2, "double").status(), Status::kDisconnected);
    EXPECT_EQ(group.network().orderly_ends(), Hosts()) << "while it goes on";
    group.shutdown();
    EXPECT_EQ(group.network().orderly_ends(), (Hosts{"w0", "w1"}));
  });
}

TEST(SimGroupTest, ARunReplaysFromItsSeed) {
  auto run = [](uint64_t seed) {
    SimGroupOptions options = options_for(3);
    options.faults.drop = 0.02;
    SimWorkerGroup group(seed, options);
    register_double(group);
    std::string wire;
    group.network().set_tap([&wire](const std::string& from, const std::string& to, const Frames& frames) {
      wire += from + to + std::to_string(frames.at(0).size()) + " ";
    });
    group.start();
    for (int32_t i = 0; i < 9; ++i) group.call(i % 3, i / 3, "double", {Value(int64_t{1})});
    group.shutdown();
    return std::pair(wire, group.scheduler().steps());
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
}

}  // namespace
}  // namespace distag::sim
