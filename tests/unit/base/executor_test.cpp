#include "base/executor.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/parker.h"

namespace distag {
namespace {

TEST(Wait, ReturnsAtOnceWhenDone) {
  auto future = Future<int>::make();
  future->complete(1);
  EXPECT_TRUE(wait(*future, 0));
  EXPECT_TRUE(wait(*future, kForever));
}

TEST(Wait, TimesOutAndMayWaitAgain) {
  auto future = Future<int>::make();
  const Nanos begin = SteadyClock().now();
  EXPECT_FALSE(wait(*future, 0));
  EXPECT_FALSE(wait(*future, 2 * kMillisecond));
  EXPECT_GE(SteadyClock().now() - begin, 2 * kMillisecond);
  future->complete(1);
  EXPECT_TRUE(wait(*future, kForever));
}

TEST(Wait, IsWokenByAnotherThread) {
  for (int round = 0; round < 1000; ++round) {
    auto future = Future<int>::make();
    std::thread other([future, round] { future->complete(round); });
    EXPECT_TRUE(wait(*future, kForever));
    EXPECT_EQ(future->value(), round);
    other.join();
  }
}

class Recording final : public WaitPolicy {
 public:
  void check() override { fail(Status::kOverloaded, "not now"); }
  bool wait(Completion&, Nanos timeout) override {
    timeout_ = timeout;
    return true;
  }
  Nanos timeout_ = 0;
};

TEST(Wait, GoesByThePolicyOfTheThread) {
  Recording policy;
  ASSERT_EQ(exchange_wait_policy(&policy), nullptr);
  auto future = Future<int>::make();
  EXPECT_THROW(check_can_wait(), Error);
  EXPECT_TRUE(wait(*future, 5));
  EXPECT_EQ(policy.timeout_, 5);
  std::thread([] { check_can_wait(); }).join();
  EXPECT_EQ(exchange_wait_policy(nullptr), &policy);
  check_can_wait();
}

TEST(Parker, KeepsAWakeThatComesFirst) {
  Parker parker;
  parker.unpark();
  parker.unpark();
  EXPECT_TRUE(parker.park(kNever));
  EXPECT_FALSE(parker.park(SteadyClock().now()));
}

TEST(Parker, PingPong) {
  Parker here;
  Parker there;
  int ball = 0;  // handed over by the wakes alone
  std::thread other([&here, &there, &ball] {
    for (int i = 0; i < 20000; ++i) {
      there.park();
      ++ball;
      here.unpark();
    }
  });
  for (int i = 0; i < 20000; ++i) {
    ++ball;
    there.unpark();
    here.park();
  }
  other.join();
  EXPECT_EQ(ball, 40000);
}

}  // namespace
}  // namespace distag
