#include "base/pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/parker.h"

namespace distag {
namespace {

// Counts down from any thread; the test waits for zero.
class Latch {
 public:
  explicit Latch(int count) : count_(count) {}
  void done() {
    if (--count_ == 0) future_->complete(Unit{});
  }
  void wait() { ASSERT_TRUE(park_until_done(*future_, 120 * kSecond)); }

 private:
  std::atomic<int> count_;
  std::shared_ptr<Future<Unit>> future_ = Future<Unit>::make();
};

TEST(Pool, RunsEveryTask) {
  std::atomic<int> sum{0};
  Latch latch(1000);
  Pool pool("test", 3, {});
  for (int i = 1; i <= 1000; ++i) {
    pool.post_or_drop([&sum, &latch, i] {
      sum += i;
      latch.done();
    });
  }
  latch.wait();
  EXPECT_EQ(sum, 500500);
}

TEST(Pool, HasAThreadOnceStarted) {
  const auto started = Future<Unit>::make();
  std::atomic<int> threads{0};
  ThreadHooks hooks;
  hooks.on_start = [started, &threads](const char*) {
    ++threads;
    started->complete(Unit{});
  };
  Pool pool("test", 1, hooks);
  pool.start();
  EXPECT_TRUE(wait(*started, 120 * kSecond));
  pool.start();
  Latch latch(1);
  pool.post_or_drop([&latch] { latch.done(); });
  latch.wait();
  pool.stop();
  EXPECT_EQ(threads, 1);
}

TEST(Pool, OneThreadRunsInOrder) {
  std::vector<int> order;
  Latch latch(100);
  Pool pool("test", 1, {});
  for (int i = 0; i < 100; ++i) {
    pool.post_or_drop([&order, &latch, i] {
      order.push_back(i);
      latch.done();
    });
  }
  latch.wait();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(Pool, RunsAtMostThreadCountAtATime) {
  std::atomic<int> now{0};
  std::atomic<int> most{0};
  Latch latch(500);
  Pool pool("test", 2, {});
  for (int i = 0; i < 500; ++i) {
    pool.post_or_drop([&now, &most, &latch] {
      const int here = ++now;
      for (int seen = most; seen < here && !most.compare_exchange_weak(seen, here);) {
      }
      std::this_thread::yield();
      --now;
      latch.done();
    });
  }
  latch.wait();
  EXPECT_LE(most, 2);
}

TEST(Pool, ThreadThatWaitsGivesItsPlaceToTasksQueuedBefore) {
  auto future = Future<int>::make();
  auto got = Future<int>::make();
  Pool pool("test", 1, {});
  pool.post_or_drop([future, got, &pool] {
    pool.post_or_drop([future] { future->complete(11); });
    wait(*future, kForever);
    got->complete(future->value());
  });
  ASSERT_TRUE(park_until_done(*got, 120 * kSecond));
  EXPECT_EQ(got->value(), 11);
}

TEST(Pool, ThreadThatWaitsGivesItsPlaceToTasksQueuedLater) {
  auto waiting = Future<Unit>::make();
  auto future = Future<int>::make();
  auto got = Future<int>::make();
  Pool pool("test", 1, {});
  pool.post_or_drop([waiting, future, got] {
    waiting->complete(Unit{});
    wait(*future, kForever);
    got->complete(future->value());
  });
  ASSERT_TRUE(park_until_done(*waiting, 120 * kSecond));
  pool.post_or_drop([future] { future->complete(12); });
  ASSERT_TRUE(park_until_done(*got, 120 * kSecond));
  EXPECT_EQ(got->value(), 12);
}

// The system makes no thread as long as one lives: it has no room for so large a stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 47);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

// A thread of the pool that waits, and how that ends.
struct Waiter {
  explicit Waiter(
      Pool& pool, const std::function<void()>& once_posted = [] {}) {
    pool.post_or_drop([begun = begun, awaited = awaited, ended = ended] {
      begun->complete(Unit{});
      try {
        wait(*awaited, kForever);
        ended->complete(Unit{});
      } catch (const Error& error) {
        ended->fail(error);
      }
    });
    once_posted();
    park_until_done(*begun, 120 * kSecond);
    // Likely to wait by then. Beside other load a yield takes as long as the turn of another process.
    const Nanos end = SteadyClock().now() + 100 * kMillisecond;
    for (int turn = 0; turn < 1000 && SteadyClock().now() < end; ++turn) std::this_thread::yield();
  }

  // The task that it waits for; dropped it ends the wait as well.
  Task end() const {
    return [owed = Owed<Unit>(awaited)] { owed->complete(Unit{}); };
  }

  const std::shared_ptr<Future<Unit>> begun = Future<Unit>::make();
  const std::shared_ptr<Future<Unit>> awaited = Future<Unit>::make();
  const std::shared_ptr<Future<Unit>> ended = Future<Unit>::make();
};

TEST(Pool, AWaitForATaskThatFindsNoThreadFailsNamingTheLackAndTheTaskRuns) {
  Pool pool("test", 1, {});
  pool.start();
  for (int round = 0; round < 3; ++round) {
    const NoThreads none;
    const Waiter waiter(pool);
    pool.post_or_drop(waiter.end());
    ASSERT_TRUE(park_until_done(*waiter.ended, 120 * kSecond));
    ASSERT_NE(waiter.ended->error(), nullptr);
    EXPECT_EQ(waiter.ended->error()->status(), Status::kOutOfMemory);
    EXPECT_NE(waiter.ended->error()->message().find("thread \"test-2\" cannot be started"), std::string::npos);
    EXPECT_NE(waiter.ended->error()->message().find("ulimit -u"), std::string::npos);
    EXPECT_TRUE(park_until_done(*waiter.awaited, 120 * kSecond));
  }
  const Waiter waiter(pool);
  pool.post_or_drop(waiter.end());
  ASSERT_TRUE(park_until_done(*waiter.ended, 120 * kSecond));
  EXPECT_EQ(waiter.ended->error(), nullptr) << "there is room again";
}

// The thread of the wait that ended takes the task then.
TEST(Pool, AWaitThatEndsBeforeLongIsNotFailedForATaskThatFindsNoThread) {
  Pool pool("test", 1, {});
  pool.start();
  bool has_ended_well = false;
  for (int round = 0; round < 20 && !has_ended_well; ++round) {  // a machine may stop for as long as a wait is left
    const NoThreads none;
    const Waiter waiter(pool);
    const auto ran = Future<Unit>::make();
    pool.post_or_drop([ran] { ran->complete(Unit{}); });
    waiter.awaited->complete(Unit{});
    ASSERT_TRUE(park_until_done(*waiter.ended, 120 * kSecond));
    has_ended_well = waiter.ended->error() == nullptr;
    ASSERT_TRUE(park_until_done(*ran, 120 * kSecond));
  }
  EXPECT_TRUE(has_ended_well);
}

TEST(Pool, ATaskThatFoundNoThreadIsGivenOneWhenThereIsRoomBeforeTheWaitFails) {
  Pool pool("test", 1, {});
  pool.start();
  bool has_ended_well = false;
  for (int round = 0; round < 20 && !has_ended_well; ++round) {
    auto none = std::make_unique<NoThreads>();
    const Waiter waiter(pool);
    pool.post_or_drop(waiter.end());
    none.reset();
    ASSERT_TRUE(park_until_done(*waiter.ended, 120 * kSecond));
    has_ended_well = waiter.ended->error() == nullptr;
  }
  EXPECT_TRUE(has_ended_well);
}

// The last one that began to wait fails; as its thread comes back, the other goes on to wait. If the machine stops, the
// first one may begin after the last: once more.
TEST(Pool, OneWaitOfSeveralFailsForALack) {
  bool has_last_failed = false;
  for (int round = 0; round < 20 && !has_last_failed; ++round) {
    Pool pool("test", 2, {});
    const Waiter first(pool);
    const Waiter last(pool);
    {
      const NoThreads none;
      pool.post_or_drop(last.end());
      ASSERT_TRUE(park_until_done(*last.ended, 120 * kSecond));
      ASSERT_TRUE(park_until_done(*last.awaited, 120 * kSecond));
      has_last_failed = last.ended->error() != nullptr;
    }
    EXPECT_TRUE(!has_last_failed || !first.ended->is_done());
    first.awaited->complete(Unit{});
    ASSERT_TRUE(park_until_done(*first.ended, 120 * kSecond));
    EXPECT_EQ(first.ended->error() == nullptr, has_last_failed) << "one of them fails";
  }
  EXPECT_TRUE(has_last_failed);
}

// The thread that comes back takes the task of the call, and waits in it; the next task is a late one. If this thread
// stands still for longer than the patience before it posts that, the call is over, and another wait is called: once
// more.
TEST(Pool, AWaitIsNotFailedForATaskThatCameLateInItsPatience) {
  bool is_late_in_it = false;
  for (int round = 0; round < 20 && !is_late_in_it; ++round) {
    Pool pool("test", 2, {});
    const Waiter first(pool);
    const Waiter last(pool);
    const NoThreads none;
    const Nanos called = SteadyClock().now();
    const Waiter early(pool, [&first] { first.awaited->complete(Unit{}); });
    const auto ran = Future<Unit>::make();
    pool.post_or_drop([ran] { ran->complete(Unit{}); });
    const Nanos posted = SteadyClock().now();
    is_late_in_it = posted - called < kSecond;
    // Else the thread of `early` stood still before its wait, and took the task itself, or the wait of `last` was not
    // called: those rounds end as well, without the case in question.
    is_late_in_it =
        is_late_in_it && park_until_done(*ran, 120 * kSecond) && last.ended->is_done() && !early.ended->is_done();
    if (is_late_in_it) {
      EXPECT_NE(last.ended->error(), nullptr);
      EXPECT_GE(SteadyClock().now() - posted, kSecond);
    }
    last.awaited->complete(Unit{});
    early.awaited->complete(Unit{});
    EXPECT_TRUE(park_until_done(*ran, 120 * kSecond) && park_until_done(*early.ended, 120 * kSecond));
    EXPECT_TRUE(!is_late_in_it || early.ended->error() == nullptr);
  }
  EXPECT_TRUE(is_late_in_it);
}

// Each level posts the next one and waits for it.
void nest(Pool& pool, int depth, const std::shared_ptr<Future<int>>& result) {
  if (depth == 0) {
    result->complete(0);
    return;
  }
  auto below = Future<int>::make();
  pool.post_or_drop([&pool, depth, below] { nest(pool, depth - 1, below); });
  try {
    wait(*below, kForever);
    result->complete(below->value() + 1);
  } catch (const Error& error) {
    result->fail(error);
  }
}

TEST(Pool, NestsTwoHundredDeepWithOneThread) {
  Pool pool("test", 1, {});
  for (int round = 0; round < 3; ++round) {
    auto result = Future<int>::make();
    pool.post_or_drop([&pool, result] { nest(pool, 200, result); });
    ASSERT_TRUE(park_until_done(*result, 120 * kSecond));
    EXPECT_EQ(result->value(), 200);
  }
}

TEST(Pool, RefusesToWaitAtTheCap) {
  Pool pool("test", 1, {});
  auto result = Future<int>::make();
  pool.post_or_drop([&pool, result] { nest(pool, 400, result); });
  ASSERT_TRUE(park_until_done(*result, 120 * kSecond));
  ASSERT_NE(result->error(), nullptr);
  EXPECT_EQ(result->error()->status(), Status::kOverloaded);
  // Whoever was refused had posted the next level before, which goes on; a stop would leave its waits without an end.
  while (pool.running() > 0 || pool.waiting() > 0) std::this_thread::yield();
  // And recovers.
  auto again = Future<int>::make();
  pool.post_or_drop([&pool, again] { nest(pool, 100, again); });
  ASSERT_TRUE(park_until_done(*again, 120 * kSecond));
  EXPECT_EQ(again->value(), 100);
}

TEST(Pool, ManyNestedWaitsAtOnce) {
  Pool pool("test", 2, {});
  std::vector<std::shared_ptr<Future<int>>> results;
  for (int i = 0; i < 20; ++i) {
    results.push_back(Future<int>::make());
    pool.post_or_drop([&pool, result = results.back()] { nest(pool, 10, result); });
  }
  for (const auto& result : results) {
    ASSERT_TRUE(park_until_done(*result, 120 * kSecond));
    EXPECT_EQ(result->value(), 10);
  }
}

TEST(Pool, WaitTimesOut) {
  auto result = Future<bool>::make();
  Pool pool("test", 1, {});
  pool.post_or_drop([result] { result->complete(wait(*Future<int>::make(), kMillisecond)); });
  ASSERT_TRUE(park_until_done(*result, 120 * kSecond));
  EXPECT_FALSE(result->value());
}

TEST(Pool, TaskThatThrowsEndsAlone) {
  Latch latch(1);
  Pool pool("test", 1, {});
  pool.post_or_drop([] { throw 1; });
  pool.post_or_drop([&latch] { latch.done(); });
  latch.wait();
}

TEST(Pool, StopDestroysWhatWasNotBegun) {
  auto token = std::make_shared<int>(0);
  auto begun = Future<Unit>::make();
  auto go_on = Future<Unit>::make();
  std::atomic<int> ran{0};
  Pool pool("test", 1, {});
  pool.post_or_drop([begun, go_on, &ran] {
    begun->complete(Unit{});
    park_until_done(*go_on, kForever);
    ++ran;
  });
  ASSERT_TRUE(park_until_done(*begun, 120 * kSecond));
  for (int i = 0; i < 10; ++i) pool.post_or_drop([token, &ran] { ++ran; });
  EXPECT_EQ(pool.waiting(), 10u);
  EXPECT_EQ(pool.running(), 1u);
  // The stop destroys the queue before it waits for the running task, which this destructor lets go.
  std::shared_ptr<int> last(new int, [go_on](int* value) {
    delete value;
    go_on->complete(Unit{});
  });
  pool.post_or_drop([last = std::move(last)] {});
  pool.stop();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(token.use_count(), 1);
  pool.post_or_drop([token] { FAIL(); });
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_EQ(pool.running(), 0u);
}

TEST(Pool, HooksSeeEveryThreadAndItsName) {
  std::mutex mutex;
  std::multiset<std::string> started;
  std::multiset<std::string> stopped;
  ThreadHooks hooks;
  hooks.on_start = [&mutex, &started](const char* name) {
    std::lock_guard<std::mutex> lock(mutex);
    started.insert(name);
  };
  hooks.on_stop = [&mutex, &stopped](const char* name) {
    std::lock_guard<std::mutex> lock(mutex);
    stopped.insert(name);
  };
  {
    Pool pool("a_name_that_is_long", 2, hooks);
    auto result = Future<int>::make();
    pool.post_or_drop([&pool, result] { nest(pool, 30, result); });
    ASSERT_TRUE(park_until_done(*result, 120 * kSecond));
  }
  EXPECT_GE(started.size(), 30u);
  EXPECT_EQ(started, stopped);
  EXPECT_EQ(started.begin()->substr(0, 10), "a_name_tha");
}

TEST(Pool, ThreadsThatWaitsMadeEndWhenTooManyAreIdle) {
  std::atomic<int> alive{0};
  ThreadHooks hooks;
  hooks.on_start = [&alive](const char*) { ++alive; };
  hooks.on_stop = [&alive](const char*) { --alive; };
  Pool pool("test", 1, hooks);
  auto result = Future<int>::make();
  pool.post_or_drop([&pool, result] { nest(pool, 100, result); });
  ASSERT_TRUE(park_until_done(*result, 120 * kSecond));
  while (alive > 12) std::this_thread::yield();
  auto again = Future<int>::make();
  pool.post_or_drop([&pool, again] { nest(pool, 100, again); });
  ASSERT_TRUE(park_until_done(*again, 120 * kSecond));
  EXPECT_EQ(again->value(), 100);
}

TEST(Pool, StartsNoThreadBeforeTheFirstTask) {
  std::atomic<int> started{0};
  ThreadHooks hooks;
  hooks.on_start = [&started](const char*) { ++started; };
  { Pool pool("test", 4, hooks); }
  EXPECT_EQ(started, 0);
}

std::vector<int> blocked_signals() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  std::vector<int> blocked;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (sigismember(&mask, signal) == 1) blocked.push_back(signal);
  }
  return blocked;
}

// Runtimes stop threads by signals of their choice (SIGPWR, SIGXCPU, SIGUSR1, real-time ones).
TEST(Pool, ThreadsBlockTheSignalsThatAProcessIsSentAndNoOthers) {
  const std::vector<int> before = blocked_signals();
  auto seen = Future<std::vector<int>>::make();
  Pool pool("test", 1, {});
  pool.post_or_drop([seen] { seen->complete(blocked_signals()); });
  ASSERT_TRUE(park_until_done(*seen, 120 * kSecond));
  std::set<int> expected(before.begin(), before.end());
  expected.insert({SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGCHLD, SIGALRM, SIGVTALRM, SIGPIPE, SIGTSTP, SIGTTIN, SIGTTOU,
                   SIGWINCH, SIGIO});
  EXPECT_EQ(seen->value(), std::vector<int>(expected.begin(), expected.end()));
  EXPECT_EQ(blocked_signals(), before);
}

TEST(Pool, StartsAndStopsUnderLoad) {
  for (int round = 0; round < 100; ++round) {
    std::atomic<int> ran{0};
    Pool pool("test", 2, {});
    std::thread other([&pool, &ran] {
      for (int i = 0; i < 50; ++i) pool.post_or_drop([&ran] { ++ran; });
    });
    for (int i = 0; i < 50; ++i) pool.post_or_drop([&ran] { ++ran; });
    pool.stop();
    other.join();
    EXPECT_LE(ran, 100);
  }
}

TEST(Pool, StopGivesUpAfterItsTimeoutAndGoesOnWhenCalledAgain) {
  Pool pool("test", 2, {});
  auto begun = Future<Unit>::make();
  auto go_on = Future<Unit>::make();
  EXPECT_TRUE(pool.post([begun, go_on] {
    begun->complete(Unit{});
    park_until_done(*go_on, kForever);
  }));
  ASSERT_TRUE(park_until_done(*begun, 120 * kSecond));
  EXPECT_FALSE(pool.stop(kMillisecond));
  EXPECT_FALSE(pool.post([] { FAIL(); }));
  EXPECT_EQ(pool.running(), 1u);
  EXPECT_FALSE(pool.stop(0));
  go_on->complete(Unit{});
  EXPECT_TRUE(pool.stop(60 * kSecond));
  EXPECT_TRUE(pool.stop(0));
  EXPECT_EQ(pool.running(), 0u);
}

}  // namespace
}  // namespace distag
