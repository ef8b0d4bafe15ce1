// The simulator itself, which the other simulations rely on.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/sim_lanes.h"
#include "support/sim_network.h"
#include "support/sim_scheduler.h"

namespace distag::sim {
namespace {

Status status_of(const std::function<void()>& code) {
  try {
    code();
  } catch (const Error& error) {
    return error.status();
  }
  return Status::kOk;
}

TEST(SimLoopTest, RunsTasksInTheOrderTheyWerePosted) {
  SimScheduler scheduler(1);
  SimLoop loop(scheduler, "loop");
  std::string order;
  for (char name = 'a'; name <= 'e'; ++name) loop.post_or_drop([&order, name] { order += name; });
  EXPECT_EQ(order, "");
  while (scheduler.step()) {
  }
  EXPECT_EQ(order, "abcde");
}

TEST(SimLoopTest, MovesTheClockToTheNextTimerOnlyWhenNothingElseRuns) {
  SimScheduler scheduler(1);
  SimLoop loop(scheduler, "loop");
  const Nanos begin = scheduler.now();
  Nanos fired = 0;
  loop.run([&] { loop.start_timer(begin + kSecond, [&] { fired = scheduler.now(); }); });
  scheduler.run_until([&] { return fired != 0; });
  EXPECT_GE(fired, begin + kSecond);
  EXPECT_LT(fired, begin + kSecond + kMillisecond);
}

TEST(SimLoopTest, ATimerCancelledAfterItWasDueDoesNotRun) {
  SimScheduler scheduler(1);
  SimLoop loop(scheduler, "loop");
  bool ran = false;
  Loop::TimerId second = 0;
  loop.run([&] {
    loop.start_timer(scheduler.now() + 10, [&] { loop.cancel_timer(second); });
    second = loop.start_timer(scheduler.now() + 10, [&] { ran = true; });
  });
  while (scheduler.step()) {
  }
  EXPECT_FALSE(ran);
}

TEST(SimLoopTest, ItsClockMayRunAtAnotherRateStandAndJump) {
  SimScheduler scheduler(1);
  SimLoop loop(scheduler, "loop");
  loop.set_clock(100 * kSecond, 1.5);
  const Nanos begin = loop.now();
  EXPECT_EQ(begin, scheduler.now() + 100 * kSecond);
  scheduler.run_for(2 * kSecond);
  EXPECT_EQ(loop.now(), begin + 3 * kSecond);
  loop.set_clock(0, 0);
  scheduler.run_for(2 * kSecond);
  EXPECT_EQ(loop.now(), begin + 3 * kSecond);
  loop.set_clock(kSecond, 1);
  EXPECT_EQ(loop.now(), begin + 4 * kSecond);
}

TEST(SimLoopTest, TimersFireByItsClockWhateverThatDoesMeanwhile) {
  for (const double rate : {0.5, 1.0, 1.1}) {
    SimScheduler scheduler(1);
    SimLoop loop(scheduler, "loop");
    loop.set_clock(0, rate);
    Nanos fired = 0;
    loop.run([&] { loop.start_timer(loop.now() + 10 * kSecond, [&] { fired = loop.now(); }); });
    const Nanos due = loop.now() + 10 * kSecond;
    scheduler.run_for(2 * kSecond);
    loop.set_clock(0, 0);
    scheduler.run_for(60 * kSecond);
    EXPECT_EQ(fired, 0);
    loop.set_clock(3 * kSecond, rate);
    const Nanos left = static_cast<Nanos>(static_cast<double>(due - loop.now()) / rate);
    scheduler.run_for(left - kMillisecond);
    EXPECT_EQ(fired, 0);
    scheduler.run_for(2 * kMillisecond);
    EXPECT_GE(fired, due);
    EXPECT_LT(fired, due + kMillisecond);
  }
}

TEST(SimLoopTest, RefusesTimersFromElsewhereAndWaitsOnIt) {
  SimScheduler scheduler(1);
  SimLoop loop(scheduler, "loop");
  EXPECT_THROW(loop.start_timer(0, [] {}), std::logic_error);
  auto never = Future<Unit>::make();
  Status refused = Status::kOk;
  loop.post_or_drop([&] { refused = status_of([&] { wait(*never, kForever); }); });
  while (scheduler.step()) {
  }
  EXPECT_EQ(refused, Status::kInvalidState);
}

TEST(SimExecutorTest, BeginsTasksInAnOrderThatTheSeedDecides) {
  auto order_of = [](uint64_t seed) {
    SimScheduler scheduler(seed);
    SimExecutor executor(scheduler, "pool");
    std::string order;
    for (char name = 'a'; name <= 'h'; ++name) executor.post_or_drop([&order, name] { order += name; });
    while (scheduler.step()) {
    }
    return order;
  };
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    orders.insert(order_of(seed));
    EXPECT_EQ(order_of(seed), order_of(seed));
  }
  EXPECT_GT(orders.size(), 40u);
}

TEST(SimExecutorTest, AWaitInATaskLetsOthersRunAndEndsWhenItIsDone) {
  SimScheduler scheduler(1);
  SimExecutor executor(scheduler, "pool");
  auto gate = Future<int>::make();
  std::string order;
  executor.post_or_drop([&] {
    order += "a";
    EXPECT_TRUE(wait(*gate, kForever));
    order += "c" + std::to_string(gate->value());
  });
  while (scheduler.step()) {
  }
  EXPECT_EQ(order, "a");
  executor.post_or_drop([&] {
    order += "b";
    gate->complete(7);
  });
  while (scheduler.step()) {
  }
  EXPECT_EQ(order, "abc7");
}

TEST(SimExecutorTest, WaitsMayEndInAnyOrder) {
  // The task that began first is done first although the other lies above it: each has a stack of its own.
  SimScheduler scheduler(3);
  SimExecutor executor(scheduler, "pool");
  auto first = Future<Unit>::make();
  auto second = Future<Unit>::make();
  std::string order;
  executor.post_or_drop([&] {
    wait(*first, kForever);
    order += "1";
    second->complete(Unit{});
  });
  while (scheduler.step()) {
  }
  executor.post_or_drop([&] {
    wait(*second, kForever);
    order += "2";
  });
  while (scheduler.step()) {
  }
  first->complete(Unit{});
  while (scheduler.step()) {
  }
  EXPECT_EQ(order, "12");
}

TEST(SimExecutorTest, AWaitEndsAtItsTimeoutInVirtualTime) {
  SimScheduler scheduler(1);
  auto never = Future<Unit>::make();
  const Nanos begin = scheduler.now();
  bool done = true;
  auto ended = scheduler.spawn([&] { done = wait(*never, 3 * kSecond); });
  EXPECT_TRUE(wait(*ended, kForever));
  EXPECT_FALSE(done);
  EXPECT_GE(scheduler.now() - begin, 3 * kSecond);
  EXPECT_FALSE(wait(*never, kSecond));
  EXPECT_GE(scheduler.now() - begin, 4 * kSecond);
}

TEST(SimExecutorTest, ExceptionsBelongToTheStackThatHandlesThem) {
  SimScheduler scheduler(5);
  auto gate = Future<Unit>::make();
  std::vector<std::shared_ptr<Future<Unit>>> ended;
  std::vector<int> seen;
  for (int i = 0; i < 20; ++i) {
    ended.push_back(scheduler.spawn([&gate, &seen, i] {
      try {
        throw i;
      } catch (int caught) {
        wait(*gate, kForever);
        try {
          throw;
        } catch (int again) {
          seen.push_back(again == caught ? again : -1);
        }
      }
    }));
  }
  scheduler.run_for(kMillisecond);
  gate->complete(Unit{});
  for (const auto& future : ended) wait(*future, kForever);
  EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), 20u);
  EXPECT_FALSE(seen.empty());
  EXPECT_GE(*std::min_element(seen.begin(), seen.end()), 0);
}

TEST(SimExecutorTest, HundredsOfWaitsWithinOneAnother) {
  SimScheduler scheduler(5);
  SimExecutor executor(scheduler, "pool");
  std::function<int(int)> descend = [&](int depth) {
    if (depth == 0) return 0;
    auto below = Future<int>::make();
    executor.post_or_drop([&descend, below, depth] { below->complete(descend(depth - 1)); });
    wait(*below, kForever);
    return below->value() + 1;
  };
  EXPECT_EQ(descend(500), 500);
}

TEST(SimExecutorTest, StoppingEndsWaitsWithCancelled) {
  SimScheduler scheduler(1);
  auto never = Future<Unit>::make();
  Status seen = Status::kOk;
  {
    SimExecutor executor(scheduler, "pool");
    executor.post_or_drop([&] { seen = status_of([&] { wait(*never, kForever); }); });
    while (scheduler.step()) {
    }
  }
  EXPECT_EQ(seen, Status::kCancelled);
}

TEST(SimSchedulerTest, AFrozenLaneRunsNothingUntilItThaws) {
  SimScheduler scheduler(1);
  SimLoop loop(scheduler, "loop");
  loop.freeze();
  bool ran = false;
  loop.post_or_drop([&] { ran = true; });
  scheduler.run_for(kSecond);
  EXPECT_FALSE(ran);
  loop.thaw();
  scheduler.run_for(kSecond);
  EXPECT_TRUE(ran);
}

TEST(SimSchedulerTest, AWaitThatCanNeverEndFailsWithAPicture) {
  SimScheduler scheduler(42);
  SimLoop loop(scheduler, "loop of a");
  auto never = Future<Unit>::make();
  try {
    wait(*never, kForever);
    FAIL() << "it ended";
  } catch (const SimStuck& stuck) {
    EXPECT_NE(std::string(stuck.what()).find("seed 42"), std::string::npos) << stuck.what();
    EXPECT_NE(std::string(stuck.what()).find("loop of a"), std::string::npos) << stuck.what();
  }
}

// Two hosts, "a" listens and "b" dials.
class SimNetworkTest : public testing::Test {
 protected:
  static Frames message(int number) {
    return {Frame(nullptr, 0, std::make_shared<const int>(number))};  // carried by its owner: no bytes needed
  }
  static int number_of(const Frames& frames) { return *static_cast<const int*>(frames.at(0).owner().get()); }

  void begin(uint64_t seed, SimFaults faults = {}) {
    scheduler = std::make_unique<SimScheduler>(seed);
    network = std::make_unique<SimNetwork>(*scheduler, faults);
    loop_a = std::make_unique<SimLoop>(*scheduler, "a");
    loop_b = std::make_unique<SimLoop>(*scheduler, "b");
    a = std::make_unique<SimTransport>(*network, *loop_a, "a");
    b = std::make_unique<SimTransport>(*network, *loop_b, "b");
    loop_a->run([this] {
      acceptor = a->listen(a->private_address(), {[this](const ConnectionToken& from, Frames frames) {
                             EXPECT_TRUE(loop_a->is_current());
                             token = from;
                             received.push_back(number_of(frames));
                           }});
    });
    endpoint = acceptor->endpoint();
  }
  void dial() {
    loop_b->run([this] {
      ConnectionEvents events;
      events.on_connected = [this] { connected = true; };
      events.on_message = [this](Frames frames) { answers.push_back(number_of(frames)); };
      events.on_writable = [this] { pump(); };
      events.on_dropped = [this](bool was_refused) {
        dropped = true;
        refused = was_refused;
      };
      connection = b->dial(endpoint, std::move(events));
    });
  }
  // Sends the numbers from `next` to `last` until one is refused; on_writable goes on.
  void pump() {
    while (next <= last && connection->send(message(next))) ++next;
  }
  void TearDown() override {
    connection.reset();
    acceptor.reset();
    a.reset();
    b.reset();
    loop_a.reset();
    loop_b.reset();
  }

  std::unique_ptr<SimScheduler> scheduler;
  std::unique_ptr<SimNetwork> network;
  std::unique_ptr<SimLoop> loop_a, loop_b;
  std::unique_ptr<SimTransport> a, b;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Connection> connection;
  std::string endpoint;
  ConnectionToken token;
  std::vector<int> received, answers;
  bool connected = false, dropped = false, refused = false;
  int next = 1, last = 0;
};

TEST_F(SimNetworkTest, KeepsTheOrderOfAConnectionAndLosesNothing) {
  SimFaults faults;
  faults.would_block = 0.2;
  faults.capacity = 7;
  begin(11, faults);
  dial();
  last = 100;
  loop_b->run([this] { pump(); });
  scheduler->run_for(kSecond);
  EXPECT_TRUE(connected);
  ASSERT_EQ(received.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(received[static_cast<size_t>(i)], i + 1);
  loop_a->run([this] { EXPECT_TRUE(acceptor->reply(token, message(5))); });
  scheduler->run_for(kSecond);
  EXPECT_EQ(answers, std::vector<int>{5});
}

TEST_F(SimNetworkTest, ADropLosesASuffixAndTellsTheDialer) {
  size_t lost_some = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    begin(seed);
    dial();
    scheduler->run_until([this] { return connected; });
    last = next + 9;
    loop_b->run([this] { pump(); });
    network->cut("a", "b");
    scheduler->run_until([this] { return dropped; });
    EXPECT_FALSE(refused);
    for (size_t i = 0; i < received.size(); ++i) EXPECT_EQ(received[i], static_cast<int>(i) + 1);
    if (received.size() < 10) ++lost_some;
    loop_b->run([this] { EXPECT_FALSE(connection->send(message(99))); });
    scheduler->run_for(kSecond);
    loop_a->run([this] { EXPECT_FALSE(acceptor->reply(token, message(1))); });
    TearDown();
    received.clear();
    connected = dropped = false;
    next = 1;
  }
  EXPECT_GT(lost_some, 50u);
}

TEST_F(SimNetworkTest, ADialIsRefusedWhereNobodyListens) {
  begin(1);
  endpoint = "sim://nobody/1";
  dial();
  scheduler->run_until([this] { return dropped; });
  EXPECT_TRUE(refused);
  EXPECT_FALSE(connected);
}

TEST_F(SimNetworkTest, AKilledHostDropsItsConnectionsAndRefusesUntilItIsBack) {
  begin(1);
  dial();
  scheduler->run_until([this] { return connected; });
  network->kill("a");
  scheduler->run_until([this] { return dropped; });
  dropped = connected = false;
  dial();
  scheduler->run_until([this] { return dropped; });
  EXPECT_TRUE(refused);

  SimTransport again(*network, *loop_a, "a");
  std::unique_ptr<Acceptor> reborn;
  loop_a->run([&] { reborn = again.listen(endpoint, {[](const ConnectionToken&, Frames) {}}); });
  dial();
  scheduler->run_until([this] { return connected; });
  connection.reset();
}

TEST_F(SimNetworkTest, NothingMovesBetweenPartedHostsUntilTheyJoin) {
  begin(1);
  dial();
  scheduler->run_until([this] { return connected; });
  network->part("a", "b");
  last = 3;
  loop_b->run([this] { pump(); });
  scheduler->run_for(10 * kSecond);
  EXPECT_TRUE(received.empty());
  EXPECT_FALSE(dropped);
  network->join("b", "a");
  scheduler->run_for(kSecond);
  EXPECT_EQ(received, (std::vector<int>{1, 2, 3}));
}

TEST_F(SimNetworkTest, APartingOneWayStopsNothingOnTheOther) {
  for (const bool is_towards_a : {false, true}) {
    begin(1);
    dial();
    scheduler->run_until([this] { return connected; });
    is_towards_a ? network->part_one_way("b", "a") : network->part_one_way("a", "b");
    next = 1;
    last = 3;
    received.clear();
    loop_b->run([this] { pump(); });
    scheduler->run_for(10 * kSecond);
    EXPECT_EQ(received.size(), is_towards_a ? 0u : 3u);
    network->join("a", "b");
    scheduler->run_for(kSecond);
    EXPECT_EQ(received.size(), 3u);
    connected = false;
    TearDown();
  }
}

TEST(SimSizeTest, WhatIsLargeComesLaterIfItIsToAndATaskKeepsItsLane) {
  SimScheduler scheduler(1);
  SimFaults faults;
  faults.delay_per_kib = kMillisecond;
  SimNetwork network(scheduler, faults);
  SimLoop loop(scheduler, "a");
  SimTransport transport(network, loop, "a");
  std::vector<Nanos> came;
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Connection> connection;
  loop.run([&] {
    acceptor = transport.listen(transport.private_address(),
                                {[&](const ConnectionToken&, const Frames&) { came.push_back(scheduler.now()); }});
    ConnectionEvents events;
    events.on_connected = [&] {
      const std::string bytes(100 << 10, 'x');
      EXPECT_TRUE(connection->send({Frame::copy_of(bytes.data(), 1)}));
      EXPECT_TRUE(connection->send({Frame::copy_of(bytes.data(), bytes.size())}));
    };
    connection = transport.dial(acceptor->endpoint(), std::move(events));
  });
  ASSERT_TRUE(scheduler.run_until([&came] { return came.size() == 2; }, kSecond));
  EXPECT_GT(came[1] - came[0], 90 * kMillisecond);
  scheduler.set_longest_task(10 * kMillisecond);
  const Nanos begin = scheduler.now();
  size_t runs = 0;
  for (int i = 0; i < 100; ++i) loop.post_or_drop([&runs] { ++runs; });
  scheduler.run_until([&runs] { return runs == 100; }, 10 * kSecond);
  EXPECT_GT(scheduler.now() - begin, 200 * kMillisecond);
  loop.run([&] {
    connection.reset();
    acceptor.reset();
  });
}

TEST_F(SimNetworkTest, AHostWithoutDescriptorsDialsNobodyAndKeepsWhoDialsItWaiting) {
  begin(1);
  network->set_short("a", true);
  dial();
  scheduler->run_for(kSecond);
  EXPECT_FALSE(connected);
  EXPECT_FALSE(dropped);
  network->set_short("a", false);
  scheduler->run_for(kSecond);
  EXPECT_TRUE(connected);
  network->set_short("b", true);
  EXPECT_EQ(status_of([this] { dial(); }), Status::kOutOfMemory);
}

TEST_F(SimNetworkTest, NoCallbackAfterTheConnectionIsGone) {
  begin(1);
  dial();
  scheduler->run_until([this] { return connected; });
  last = 5;
  loop_b->run([this] { pump(); });
  connection.reset();
  scheduler->run_for(kSecond);
  EXPECT_FALSE(dropped);
  EXPECT_LE(received.size(), 5u);
}

TEST_F(SimNetworkTest, AnAddressIsTakenOnceAndFreeAgainAfterwards) {
  begin(1);
  loop_a->run([this] {
    EXPECT_EQ(status_of([this] { a->listen(endpoint, {}); }), Status::kInvalidState);
    EXPECT_EQ(status_of([this] { a->listen("nonsense", {}); }), Status::kInvalidArgument);
    acceptor.reset();
    acceptor = a->listen(endpoint, {[](const ConnectionToken&, Frames) {}});
  });
  EXPECT_EQ(acceptor->endpoint(), endpoint);
}

}  // namespace
}  // namespace distag::sim
