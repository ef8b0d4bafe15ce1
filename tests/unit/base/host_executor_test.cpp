#include "base/host_executor.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>
#include <thread>

#include "base/future.h"
#include "base/parker.h"

namespace distag {
namespace {

bool is_readable(int fd) {
  pollfd item{fd, POLLIN, 0};
  return ::poll(&item, 1, 0) == 1;
}

TEST(HostExecutor, RunsInPollOnlyAndInOrder) {
  HostExecutor host;
  std::string order;
  for (char c : {'a', 'b', 'c'}) host.post_or_drop([&order, c] { order += c; });
  EXPECT_EQ(order, "");
  EXPECT_EQ(host.waiting(), 3u);
  EXPECT_EQ(host.poll(2, kForever), 2u);
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(host.poll(0, kForever), 1u);
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(host.poll(0, kForever), 0u);
}

TEST(HostExecutor, StartsNoneAfterTheTimeHasPassed) {
  HostExecutor host;
  int ran = 0;
  const SteadyClock clock;
  for (int i = 0; i < 100; ++i) {
    host.post_or_drop([&ran, &clock] {
      ++ran;
      for (const Nanos begin = clock.now(); clock.now() - begin < kMillisecond;) {
      }
    });
  }
  host.poll(0, 3 * kMillisecond);
  EXPECT_GE(ran, 1);
  EXPECT_LE(ran, 3);
  EXPECT_EQ(host.poll(0, 0), 0u);
}

TEST(HostExecutor, DescriptorIsReadableWhileThereIsSomethingToRun) {
  HostExecutor host;
  host.post_or_drop([] {});
  const int fd = host.fd();
  EXPECT_EQ(host.fd(), fd);
  EXPECT_TRUE(is_readable(fd));
  host.post_or_drop([] {});
  host.poll(1, kForever);
  EXPECT_TRUE(is_readable(fd));
  host.poll(1, kForever);
  EXPECT_FALSE(is_readable(fd));
  host.post_or_drop([] {});
  EXPECT_TRUE(is_readable(fd));
}

TEST(HostExecutor, IsPumpedByWaitsOfItsMaker) {
  HostExecutor host;
  auto future = Future<int>::make();
  host.post_or_drop([future] { future->complete(3); });
  EXPECT_TRUE(wait(*future, kForever));
  EXPECT_EQ(future->value(), 3);
}

TEST(HostExecutor, WaitRunsWhatIsPostedMeanwhileByAnotherThread) {
  HostExecutor host;
  for (int round = 0; round < 500; ++round) {
    auto future = Future<std::thread::id>::make();
    std::thread other(
        [&host, future] { host.post_or_drop([future] { future->complete(std::this_thread::get_id()); }); });
    EXPECT_TRUE(wait(*future, kForever));
    EXPECT_EQ(future->value(), std::this_thread::get_id());
    other.join();
  }
}

TEST(HostExecutor, WaitRunsTasksInsideTasks) {
  HostExecutor host;
  auto inner = Future<int>::make();
  auto outer = Future<int>::make();
  host.post_or_drop([inner, outer] {
    wait(*inner, kForever);
    outer->complete(inner->value() + 1);
  });
  host.post_or_drop([inner] { inner->complete(1); });
  EXPECT_EQ(host.poll(1, kForever), 1u);
  EXPECT_EQ(outer->value(), 2);
  EXPECT_EQ(host.waiting(), 0u);
}

TEST(HostExecutor, WaitPumpsAllExecutorsOfTheThread) {
  HostExecutor first;
  HostExecutor second;
  auto future = Future<int>::make();
  first.post_or_drop([&second, future] { second.post_or_drop([future] { future->complete(9); }); });
  EXPECT_TRUE(wait(*future, kForever));
}

TEST(HostExecutor, OtherThreadsDoNotPump) {
  HostExecutor host;
  auto future = Future<int>::make();
  host.post_or_drop([future] { future->complete(1); });
  std::thread([future] { EXPECT_FALSE(wait(*future, 2 * kMillisecond)); }).join();
  EXPECT_EQ(host.waiting(), 1u);
}

TEST(HostExecutor, TheLastThreadThatPolledPumps) {
  HostExecutor host;
  auto future = Future<int>::make();
  std::thread([&host, future] {
    host.poll(0, kForever);
    host.post_or_drop([future] { future->complete(1); });
    EXPECT_TRUE(wait(*future, kForever));
  }).join();
  auto mine = Future<int>::make();
  host.post_or_drop([mine] { mine->complete(1); });
  EXPECT_FALSE(wait(*mine, kMillisecond));
  host.poll(0, kForever);
  EXPECT_TRUE(mine->is_done());
}

TEST(HostExecutor, OneTaskAtATime) {
  HostExecutor host;
  host.post_or_drop([&host] { std::thread([&host] { EXPECT_EQ(host.poll(0, kForever), 0u); }).join(); });
  host.post_or_drop([] {});
  EXPECT_EQ(host.poll(1, kForever), 1u);
  EXPECT_EQ(host.waiting(), 1u);
}

TEST(HostExecutor, WaitTimesOutWhilePumping) {
  HostExecutor host;
  std::function<void()> again = [&host, &again] { host.post_or_drop([&again] { again(); }); };
  again();
  EXPECT_FALSE(wait(*Future<int>::make(), 2 * kMillisecond));
}

TEST(HostExecutor, DestroysWhatWasNotRun) {
  auto token = std::make_shared<int>(0);
  {
    HostExecutor host;
    host.post_or_drop([token] { FAIL(); });
    // A task that posts when it is destroyed.
    std::shared_ptr<int> guard(new int, [&host, token](int* value) {
      delete value;
      host.post_or_drop([token] { FAIL(); });
    });
    host.post_or_drop([guard] { FAIL(); });
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(HostExecutor, MayEndInsideItsOwnTaskDuringAWait) {
  auto host = std::make_unique<HostExecutor>();
  auto future = Future<int>::make();
  host->post_or_drop([&host, future] {
    host.reset();
    future->complete(1);
  });
  EXPECT_TRUE(wait(*future, kForever));
  EXPECT_EQ(host, nullptr);
}

TEST(HostExecutor, TaskThatThrowsEndsAlone) {
  HostExecutor host;
  int ran = 0;
  host.post_or_drop([] { throw 1; });
  host.post_or_drop([&ran] { ++ran; });
  EXPECT_EQ(host.poll(0, kForever), 2u);
  EXPECT_EQ(ran, 1);
}

TEST(HostExecutor, TakesNothingOnceItIsStopped) {
  HostExecutor host;
  auto token = std::make_shared<int>(0);
  EXPECT_TRUE(host.post([token] { FAIL(); }));
  host.stop();
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(host.post([token] { FAIL(); }));
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_EQ(host.poll(0, kForever), 0u);
}

TEST(HostExecutor, StopWaitsForTheTaskThatAnotherThreadIsInsideOf) {
  HostExecutor host;
  auto begun = Future<Unit>::make();
  auto go_on = Future<Unit>::make();
  host.post_or_drop([begun, go_on] {
    begun->complete(Unit{});
    park_until_done(*go_on, kForever);
  });
  std::thread other([&host] { EXPECT_EQ(host.poll(0, kForever), 1u); });
  ASSERT_TRUE(park_until_done(*begun, 120 * kSecond));
  EXPECT_FALSE(host.stop(kMillisecond));
  go_on->complete(Unit{});
  EXPECT_TRUE(host.stop(60 * kSecond));
  other.join();
}

}  // namespace
}  // namespace distag
