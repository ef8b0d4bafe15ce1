#include "base/fd_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/executor.h"

namespace distag {
namespace {

// Runs the call on the loop and gives what it gave.
template <typename Call>
auto on_loop(Loop& loop, Call call) {
  auto future = Future<decltype(call())>::make();
  loop.post_or_drop([future, &call] { future->complete(call()); });
  EXPECT_TRUE(wait(*future, 120 * kSecond));
  return future->value();
}

class FdLoopTest : public ::testing::Test {
 protected:
  void SetUp() override { loop_.start(); }
  FdLoop loop_{"test", {}};
};

TEST_F(FdLoopTest, RunsPostedTasksInOrderOnItsThread) {
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) loop_.post_or_drop([&order, i] { order.push_back(i); });
  EXPECT_TRUE(on_loop(loop_, [this] { return loop_.is_current(); }));
  EXPECT_FALSE(loop_.is_current());
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST_F(FdLoopTest, RunsTasksAtPlacesOfTheirPosterInOrder) {
  constexpr size_t kCount = 100;
  std::vector<TaskPlace> places(kCount);
  std::vector<size_t> order;
  for (size_t i = 0; i < kCount; ++i) {
    loop_.post_or_drop(places[i], [&order, i] { order.push_back(2 * i); });
    loop_.post_or_drop([&order, i] { order.push_back(2 * i + 1); });
  }
  on_loop(loop_, [] { return true; });
  ASSERT_EQ(order.size(), 2 * kCount);
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
}

TEST_F(FdLoopTest, ATimerAtAPlaceOfItsOwnerRuns) {
  TaskPlace place;
  auto done = Future<Unit>::make();
  on_loop(loop_, [this, &place, done] {
    loop_.start_timer(place, loop_.now() + kMillisecond, [done] { done->complete(Unit{}); });
    return true;
  });
  EXPECT_TRUE(wait(*done, 120 * kSecond));
}

TEST(FdLoop, AStoppedLoopDestroysTasksAtPlaces) {
  FdLoop loop("test", {});
  TaskPlace posted, timer;
  auto token = std::make_shared<int>(0);
  EXPECT_TRUE(loop.post(posted, [&loop, &timer, token] { loop.start_timer(timer, kNever - 1, [token] { FAIL(); }); }));
  loop.start();
  loop.stop();
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_FALSE(loop.post(posted, [token] { FAIL(); }));
  EXPECT_EQ(token.use_count(), 1);
}

// Processor time of the calling thread.
Nanos processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Nanos>(time.tv_sec) * kSecond + time.tv_nsec;
}

// Time of the processor: a task that merely waits for its turn on a busy machine is no offender.
TEST(FdLoopWatchdog, IsToldWhatEachTaskTookOfTheProcessor) {
  struct Seen {
    std::string what;
    FdLoop::Cost cost;
  };
  std::vector<Seen> seen;
  FdLoop loop("watched", {});
  loop.set_watchdog([&seen](const char* what, const FdLoop::Cost& cost) { seen.push_back({what, cost}); });
  loop.post_or_drop([] {
    WaitPolicy* const policy = exchange_wait_policy(nullptr);
    wait(*Future<Unit>::make(), 300 * kMillisecond);
    exchange_wait_policy(policy);
  });
  loop.post_or_drop([] {
    while (processor_time() < 100 * kMillisecond) continue;
  });
  constexpr int64_t kPages = 16384;  // which takes over a millisecond
  loop.post_or_drop([] {
    constexpr size_t kPage = 4096, kBytes = kPages * kPage;
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    madvise(memory, kBytes, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < kBytes; at += kPage) static_cast<volatile char*>(memory)[at] = 1;
    munmap(memory, kBytes);
  });
  loop.start();
  loop.stop();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_LT(seen[0].cost.taken, seen[1].cost.taken);
  EXPECT_GT(seen[1].cost.taken, kMillisecond);
  EXPECT_GE(seen[2].cost.page_faults, kPages);
  EXPECT_NE(seen[1].what.find("FdLoopWatchdog"), std::string::npos) << seen[1].what;
}

TEST_F(FdLoopTest, RunsTasksOfManyThreads) {
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, &ran] {
      for (int i = 0; i < 5000; ++i) loop_.post_or_drop([&ran] { ++ran; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  loop_.stop();
  EXPECT_EQ(ran, 20000);
}

TEST_F(FdLoopTest, EveryPostIsSeenHoweverItMeetsTheSleep) {
  for (int i = 0; i < 20000; ++i) on_loop(loop_, [] { return 0; });
}

TEST_F(FdLoopTest, TimersRunByTimeAndNotBefore) {
  auto done = Future<std::string>::make();
  loop_.post_or_drop([this, done] {
    auto order = std::make_shared<std::string>();
    const Nanos begin = loop_.now();
    const auto add = [this, order, begin](Nanos after, char c) {
      return loop_.start_timer(begin + after, [this, order, begin, after, c] {
        EXPECT_GE(loop_.now() - begin, after);
        order->push_back(c);
      });
    };
    add(3 * kMillisecond, 'c');
    add(0, 'a');
    loop_.cancel_timer(add(2 * kMillisecond, 'x'));
    add(kMillisecond, 'b');
    loop_.start_timer(begin + 4 * kMillisecond, [done, order] { done->complete(*order); });
  });
  ASSERT_TRUE(wait(*done, 120 * kSecond));
  EXPECT_EQ(done->value(), "abc");
}

TEST_F(FdLoopTest, TimersAreFinerThanAMillisecond) {
  auto late = Future<Nanos>::make();
  loop_.post_or_drop([this, late] {
    const Nanos when = loop_.now() + 200 * kMicrosecond;
    loop_.start_timer(when, [this, late, when] { late->complete(loop_.now() - when); });
  });
  ASSERT_TRUE(wait(*late, 120 * kSecond));
  EXPECT_GE(late->value(), 0);
}

TEST_F(FdLoopTest, TimerThatStartsItselfAnewLetsOthersRun) {
  std::atomic<int> fired{0};
  std::function<void()> again = [this, &again, &fired] {
    ++fired;
    loop_.start_timer(loop_.now(), [&again] { again(); });
  };
  loop_.post_or_drop([&again] { again(); });
  for (int i = 0; i < 100; ++i) on_loop(loop_, [] { return 0; });
  loop_.stop();
  EXPECT_GE(fired, 1);
}

TEST_F(FdLoopTest, CallsBackWhileADescriptorIsReadable) {
  const int fd = eventfd(0, EFD_NONBLOCK);
  ASSERT_GE(fd, 0);
  auto three = Future<int>::make();
  on_loop(loop_, [this, fd, three] {
    auto calls = std::make_shared<int>(0);
    loop_.watch(fd, [this, fd, three, calls] {
      if (++*calls != 3) return;  // level-triggered: not read yet, so it comes again
      loop_.unwatch(fd);
      three->complete(*calls);
    });
    return 0;
  });
  EXPECT_FALSE(wait(*three, kMillisecond));
  ASSERT_EQ(eventfd_write(fd, 1), 0);
  ASSERT_TRUE(wait(*three, 120 * kSecond));
  on_loop(loop_, [] { return 0; });
  EXPECT_EQ(three->value(), 3);
  close(fd);
}

TEST_F(FdLoopTest, DescriptorsGetTheirTurnWhileTasksKeepComing) {
  const int fd = eventfd(1, EFD_NONBLOCK);
  ASSERT_GE(fd, 0);
  auto readable = Future<Unit>::make();
  std::atomic<bool> is_over{false};
  std::function<void()> again = [this, &again, &is_over] {
    if (!is_over) loop_.post_or_drop([&again] { again(); });
  };
  on_loop(loop_, [&] {
    again();
    loop_.watch(fd, [this, fd, readable] {
      loop_.unwatch(fd);
      readable->complete(Unit{});
    });
    return 0;
  });
  EXPECT_TRUE(wait(*readable, 120 * kSecond));
  is_over = true;
  loop_.stop();
  close(fd);
}

TEST_F(FdLoopTest, SleepsHoweverLongItsChecksTake) {
  const auto checks = std::make_shared<int>(0);  // the loop outlives this
  on_loop(loop_, [this, checks] {
    loop_.add_idle_check([this, checks] {
      ++*checks;
      const Nanos until = loop_.now() + 200 * kMicrosecond;
      while (loop_.now() < until) {
      }
      return false;
    });
    return 0;
  });
  const auto never = Future<Unit>::make();
  EXPECT_FALSE(wait(*never, 50 * kMillisecond));
  EXPECT_LT(on_loop(loop_, [checks] { return *checks; }), 50);
}

TEST_F(FdLoopTest, CallsBackWhileADescriptorIsWritableAndThatIsAwaited) {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);  // writable until it is full
  std::atomic<int> readable{0};
  int written = 0;
  auto done = Future<Unit>::make();
  on_loop(loop_, [&] {
    loop_.watch(
        fd, [&readable] { ++readable; },
        [&] {
          if (++written < 3) return;
          loop_.await_writable(fd, false);
          loop_.post_or_drop([done] { done->complete(Unit{}); });
        });
    return true;
  });
  EXPECT_EQ(on_loop(loop_, [&written] { return written; }), 0);
  on_loop(loop_, [&] {
    loop_.await_writable(fd, true);
    return true;
  });
  ASSERT_TRUE(wait(*done, 120 * kSecond));
  for (int i = 0; i < 10; ++i) on_loop(loop_, [] { return true; });
  EXPECT_EQ(on_loop(loop_, [&written] { return written; }), 3);
  EXPECT_EQ(readable, 0);
  on_loop(loop_, [&] {
    loop_.unwatch(fd);
    loop_.await_writable(fd, true);  // a descriptor that is not watched: nothing
    return true;
  });
  close(fd);
}

// The one whose reader hangs up in between is not called for what the system told before.
TEST_F(FdLoopTest, ADescriptorThatIsUnwatchedWhenItIsReadIsNotWritten) {
  const int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);  // both
  std::atomic<int> written{0};
  auto done = Future<Unit>::make();
  on_loop(loop_, [&] {
    loop_.watch(
        fd,
        [&] {
          loop_.unwatch(fd);
          loop_.post_or_drop([done] { done->complete(Unit{}); });
        },
        [&written] { ++written; });
    loop_.await_writable(fd, true);
    return true;
  });
  ASSERT_TRUE(wait(*done, 120 * kSecond));
  EXPECT_EQ(written, 0);
  close(fd);
}

TEST_F(FdLoopTest, IdleChecksRunUntilAllAreIdle) {
  auto calls = std::make_shared<int>(0);
  on_loop(loop_, [this, calls] {
    loop_.add_idle_check([calls] { return ++*calls < 5; });
    return 0;
  });
  EXPECT_GE(on_loop(loop_, [calls] { return *calls; }), 1);
  while (on_loop(loop_, [calls] { return *calls; }) < 5) {
  }
}

TEST_F(FdLoopTest, RemovedIdleCheckIsGoneEvenFromWithin) {
  auto calls = std::make_shared<int>(0);
  on_loop(loop_, [this, calls] {
    auto id = std::make_shared<uint64_t>(0);
    *id = loop_.add_idle_check([this, calls, id] {
      loop_.remove_idle_check(*id);
      ++*calls;
      return true;
    });
    return 0;
  });
  for (int i = 0; i < 10; ++i) on_loop(loop_, [] { return 0; });
  EXPECT_EQ(on_loop(loop_, [calls] { return *calls; }), 1);
  EXPECT_EQ(calls.use_count(), 1);
}

class CountedLookout final : public Lookout {
 public:
  bool has_work() noexcept override {
    ++looks;
    return false;
  }
  bool is_under_way() const noexcept override { return within_message; }
  bool begin_sleep() noexcept override { return false; }
  void end_sleep() noexcept override {}
  int looks = 0;
  bool within_message = false;
};

// After a timer, which is not answered.
TEST_F(FdLoopTest, LooksAroundWithoutNewsOnlyWithinAMessage) {
  CountedLookout lookout;
  on_loop(loop_, [&] { return loop_.add_lookout(lookout), true; });
  for (const bool within_message : {false, true}) {
    auto looks = Future<int>::make();
    const auto after = [this](Task task) { loop_.start_timer(loop_.now() + 5 * kMillisecond, std::move(task)); };
    on_loop(loop_, [&] {
      lookout.within_message = within_message;
      after([&] {
        after([&] {
          lookout.looks = 0;
          after([&] { looks->complete(lookout.looks); });
        });
      });
      return true;
    });
    ASSERT_TRUE(wait(*looks, 120 * kSecond));
    EXPECT_EQ(looks->value() > 0, within_message) << looks->value();
  }
  on_loop(loop_, [&] { return loop_.remove_lookout(lookout), true; });
}

TEST_F(FdLoopTest, RefusesToWaitOnItsThread) {
  const auto refused = on_loop(loop_, [] {
    try {
      wait(*Future<int>::make(), kForever);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  });
  EXPECT_EQ(refused,
            "a callback on the loop thread \"test\" may not wait: use the _async call and go on in its callback");
}

TEST_F(FdLoopTest, TellsItsLongestTask) {
  on_loop(loop_, [this] {
    for (const Nanos begin = loop_.now(); loop_.now() - begin < 3 * kMillisecond;) {
    }
    return 0;
  });
  on_loop(loop_, [] { return 0; });
  EXPECT_GE(loop_.longest_task(), 3 * kMillisecond);
}

TEST_F(FdLoopTest, TaskThatThrowsEndsAlone) {
  loop_.post_or_drop([] { throw 1; });
  EXPECT_EQ(on_loop(loop_, [] { return 4; }), 4);
}

TEST(FdLoop, KeepsTasksPostedBeforeItStarts) {
  FdLoop loop("test", {});
  int ran = 0;
  loop.post_or_drop([&ran] { ++ran; });
  loop.start();
  loop.stop();
  EXPECT_EQ(ran, 1);
}

TEST(FdLoop, StopDestroysWhatIsLeftAsIfOnTheLoop) {
  auto token = std::make_shared<int>(0);
  bool on_loop_then = false;
  {
    FdLoop loop("test", {});
    loop.start();
    auto timer = std::make_shared<Loop::TimerId>(0);
    std::shared_ptr<int> guard(new int, [&loop, &on_loop_then, timer](int* value) {
      delete value;
      on_loop_then = loop.is_current();
      loop.cancel_timer(*timer);
      loop.post_or_drop([] { FAIL(); });
    });
    loop.post_or_drop([&loop, token, timer, guard = std::move(guard)]() mutable {
      *timer = loop.start_timer(kNever, [token] { FAIL(); });
      loop.start_timer(kNever, [token, guard = std::move(guard)] { FAIL(); });
      loop.add_idle_check([token] { return false; });
    });
    loop.stop();
    loop.stop();
    loop.post_or_drop([token] { FAIL(); });
  }
  EXPECT_TRUE(on_loop_then);
  EXPECT_EQ(token.use_count(), 1);
}

TEST(FdLoop, NeverStartedDestroysItsTasks) {
  auto token = std::make_shared<int>(0);
  {
    FdLoop loop("test", {});
    loop.post_or_drop([token] { FAIL(); });
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(FdLoop, StartsOnce) {
  FdLoop loop("test", {});
  loop.start();
  EXPECT_THROW(loop.start(), Error);
  loop.stop();
  EXPECT_THROW(loop.start(), Error);
}

TEST(FdLoop, TellsWhatTasksTimersAndChecksThrow) {
  FdLoop loop("test", {});
  std::vector<std::string> told;
  bool was_on_loop = true;
  loop.set_on_failure([&](const Error& error) {
    was_on_loop = was_on_loop && loop.is_current();
    told.push_back(error.message());
  });
  EXPECT_TRUE(loop.post([] { fail(Status::kInternal, "task"); }));
  EXPECT_TRUE(loop.post([] { throw std::bad_alloc(); }));
  EXPECT_TRUE(loop.post([&loop] { loop.start_timer(0, [] { fail(Status::kInternal, "timer"); }); }));
  loop.start();
  on_loop(loop, [] { return 0; });
  on_loop(loop, [&loop] {
    auto id = std::make_shared<uint64_t>(0);
    *id = loop.add_idle_check([&loop, id]() -> bool {
      loop.remove_idle_check(*id);
      fail(Status::kInternal, "check");
    });
    return 0;
  });
  while (on_loop(loop, [&told] { return told.size(); }) < 4) std::this_thread::yield();
  loop.stop();
  EXPECT_EQ(told, (std::vector<std::string>{"task", "out of memory", "timer", "check"}));
  EXPECT_TRUE(was_on_loop);
}

// However many threads post while it stops: what it took has run, what it did not take was destroyed at once.
TEST(FdLoop, RunsWhatItTookAndSaysWhatItDidNot) {
  for (int round = 0; round < 50; ++round) {
    FdLoop loop("test", {});
    loop.start();
    std::atomic<int> taken{0};
    std::atomic<int> ran{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (;;) {
          auto token = std::make_shared<int>(0);
          if (!loop.post([&ran, token] { ++ran; })) {
            EXPECT_EQ(token.use_count(), 1);
            return;
          }
          ++taken;
        }
      });
    }
    while (ran < 10) std::this_thread::yield();
    loop.stop();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(ran, taken);
    EXPECT_FALSE(run_on(loop, [] { FAIL(); }));
  }
}

}  // namespace
}  // namespace distag
