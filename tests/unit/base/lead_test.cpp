#include "base/lead.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/fd_loop.h"
#include "base/host_code.h"
#include "base/pool.h"

namespace distag {
namespace {

constexpr Nanos kLong = 60 * kSecond;

// A thread that does one thing at a time, started on any thread. Who waits for that may also end this.
class OtherThread {
 public:
  ~OtherThread() { join(); }
  void start(Task task) {
    join();
    is_there_ = false;
    thread_ = std::thread([this, task = std::move(task)]() mutable {
      while (!is_there_) std::this_thread::yield();
      task();
    });
    is_there_ = true;
  }

 private:
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  std::thread thread_;
  std::atomic<bool> is_there_{false};
};

class LeadTest : public ::testing::Test {
 protected:
  void SetUp() override { loop_.start(); }

  // Posts a task and waits for its end, as a call does; the thread on which it ran.
  std::thread::id ask() {
    auto done = Future<std::thread::id>::make();
    const Lead lead(loop_);
    loop_.post_or_drop([done] { done->complete(std::this_thread::get_id()); });
    EXPECT_TRUE(wait(*done, kLong));
    return done->value();
  }

  // Until the loop's thread sleeps, so that the seat is free: a call is led then. It has a millisecond for that.
  void lead_once() {
    const auto never = Future<Unit>::make();
    while (ask() != std::this_thread::get_id()) EXPECT_FALSE(wait(*never, kMillisecond));
  }

  // Runs on the loop's own thread: it is awake, as no thread waits in a Lead.
  void post_and_await(Task task) {
    auto done = Future<Unit>::make();
    loop_.post_or_drop([done, task = std::move(task)]() mutable {
      task();
      done->complete(Unit{});
    });
    ASSERT_TRUE(wait(*done, kLong));
  }

  FdLoop loop_{"test", {}};
};

TEST_F(LeadTest, AWaitingThreadRunsTheLoop) {
  const uint64_t before = loop_.leads();
  lead_once();
  EXPECT_GT(loop_.leads(), before);
  std::thread::id own;
  post_and_await([&own] { own = std::this_thread::get_id(); });
  EXPECT_NE(own, std::this_thread::get_id());
}

TEST_F(LeadTest, TheLoopIsCurrentOnTheThreadThatRunsIt) {
  bool was_current = false;
  auto done = Future<Unit>::make();
  lead_once();
  {
    const Lead lead(loop_);
    loop_.post_or_drop([&] {
      was_current = loop_.is_current();
      done->complete(Unit{});
    });
    ASSERT_TRUE(wait(*done, kLong));
  }
  EXPECT_TRUE(was_current);
  EXPECT_FALSE(loop_.is_current());
}

TEST_F(LeadTest, WhatWasPostedBeforeALeadThatDoesNotWaitRuns) {
  for (int i = 0; i < 2000; ++i) {
    auto done = Future<Unit>::make();
    {
      const Lead lead(loop_);
      loop_.post_or_drop([done] { done->complete(Unit{}); });
    }
    ASSERT_TRUE(wait(*done, kLong));
  }
}

TEST_F(LeadTest, CodeThatMayWaitInAWayOfItsOwnFindsWhatWasPostedTaken) {
  lead_once();
  std::atomic<bool> ran{false};
  const Lead lead(loop_);
  loop_.post_or_drop([&ran] { ran = true; });
  const NoLead none;
  while (!ran) std::this_thread::yield();
}

TEST_F(LeadTest, HostCodeThatRunsUnderALeadFindsWhatWasPostedTaken) {
  lead_once();
  std::atomic<bool> ran{false};
  const Lead lead(loop_);
  run_host_code([&] {
    loop_.post_or_drop([&ran] { ran = true; });
    while (!ran) std::this_thread::yield();
  });
}

TEST_F(LeadTest, AnotherThreadMayBringTheEnd) {
  OtherThread other;
  for (int i = 0; i < 300; ++i) {
    auto done = Future<Unit>::make();
    const Lead lead(loop_);
    loop_.post_or_drop([&other, done, i] {
      other.start([done, i] {
        for (int turn = 0; turn < i % 7; ++turn) std::this_thread::yield();
        done->complete(Unit{});
      });
    });
    ASSERT_TRUE(wait(*done, kLong));
  }
}

TEST_F(LeadTest, AWaitOfALedTaskIsRefused) {
  lead_once();
  auto refused = Future<Status>::make();
  const Lead lead(loop_);
  loop_.post_or_drop([refused] {
    try {
      wait(*Future<Unit>::make(), kSecond);
      refused->complete(Status::kOk);
    } catch (const Error& error) {
      refused->complete(error.status());
    }
  });
  ASSERT_TRUE(wait(*refused, kLong));
  EXPECT_EQ(refused->value(), Status::kInvalidState);
}

TEST_F(LeadTest, ATimeoutEndsTheWait) {
  lead_once();
  const Lead lead(loop_);
  EXPECT_FALSE(wait(*Future<Unit>::make(), 200 * kMicrosecond));
  EXPECT_FALSE(wait(*Future<Unit>::make(), 20 * kMillisecond));
}

TEST_F(LeadTest, ATimerThatALedTaskStartsGoesOff) {
  for (int i = 0; i < 50; ++i) {
    lead_once();
    auto rang = Future<Nanos>::make();
    auto done = Future<Unit>::make();
    {
      const Lead lead(loop_);
      loop_.post_or_drop([this, rang, done] {
        const Nanos due = loop_.now() + kMillisecond;
        loop_.start_timer(due, [this, rang, due] { rang->complete(loop_.now() - due); });
        done->complete(Unit{});
      });
      ASSERT_TRUE(wait(*done, kLong));
    }
    // The loop's thread has slept since before the timer was made.
    ASSERT_TRUE(wait(*rang, kLong));
    EXPECT_GE(rang->value(), 0);
  }
}

TEST_F(LeadTest, ADescriptorIsSeenWhoeverRunsTheLoop) {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::shared_ptr<Future<Unit>> readable;
  post_and_await([&] {
    loop_.watch(fd, [&readable, fd] {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
      readable->complete(Unit{});
    });
  });
  const uint64_t one = 1;
  for (int i = 0; i < 2000; ++i) {
    // A task of the loop sets it, so that it is set before the descriptor is looked at.
    auto next = Future<Unit>::make();
    const Lead lead(loop_);
    loop_.post_or_drop([&readable, next, fd, one] {
      readable = next;
      [[maybe_unused]] const ssize_t put = write(fd, &one, sizeof one);
    });
    ASSERT_TRUE(wait(*next, kLong)) << i;
  }
  post_and_await([&] { loop_.unwatch(fd); });
  close(fd);
}

TEST_F(LeadTest, ADescriptorIsSeenAfterALead) {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::shared_ptr<Future<Unit>> readable;
  post_and_await([&] {
    loop_.watch(fd, [&readable, fd] {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
      const auto told = readable;  // another one is there as soon as it is complete
      told->complete(Unit{});
    });
  });
  const uint64_t one = 1;
  for (int i = 0; i < 50; ++i) {
    readable = Future<Unit>::make();
    lead_once();
    // No thread leads now: the loop's own thread has to see it.
    EXPECT_EQ(write(fd, &one, sizeof one), ssize_t{sizeof one});
    ASSERT_TRUE(wait(*readable, kLong)) << i;
  }
  post_and_await([&] { loop_.unwatch(fd); });
  close(fd);
}

// ---- a leader that sleeps ----

// Waits for what comes a moment after everybody has gone to sleep, a few times; `begin` runs on the loop.
class SleepingLeadTest : public LeadTest {
 protected:
  struct Seen {
    int here = 0;  // how often this thread ran it
    int led = 0;   // in how many waits this thread had the seat
    int slow = 0;  // how many of those ended 5 ms after what they waited for came
  };
  using End = std::shared_ptr<Future<std::thread::id>>;

  Seen watch(const std::function<void(const End&)>& begin) {
    Seen seen;
    // On a busy machine the loop's own thread may be the first for long.
    for (int i = 0; i < 20 || (seen.led == 0 && i < 10000); ++i) {
      lead_once();
      auto end = Future<std::thread::id>::make();
      const uint64_t leads = loop_.leads();
      const Lead lead(loop_);
      loop_.post_or_drop([&begin, end] { begin(end); });
      EXPECT_TRUE(wait(*end, kLong));
      const bool is_slow = loop_.now() - came_at_ >= 5 * kMillisecond;
      const bool is_led = loop_.leads() != leads;
      seen.here += end->value() == std::this_thread::get_id() ? 1 : 0;
      seen.led += is_led ? 1 : 0;
      seen.slow += is_led && is_slow ? 1 : 0;
    }
    EXPECT_GT(seen.led, 0);
    return seen;
  }

  // Most of the leaders are woken in time: in one of some rounds, as a machine that is busy is late itself.
  Seen watch_quick(const std::function<void(const End&)>& begin) {
    const Seen seen = watch_until([](const Seen& one) { return 2 * one.slow <= one.led; }, begin);
    EXPECT_LE(2 * seen.slow, seen.led);
    return seen;
  }

  // The first of many rounds that is as it should be, else the last.
  Seen watch_until(const std::function<bool(const Seen&)>& is_right, const std::function<void(const End&)>& begin) {
    Seen seen = watch(begin);
    for (int round = 0; round < 200 && !is_right(seen); ++round) seen = watch(begin);
    return seen;
  }

  // On a thread of its own, once the leader has had time to fall asleep.
  void later(Task task) {
    other_.start([this, task = std::move(task)]() mutable {
      const Nanos until = loop_.now() + kMillisecond;
      while (loop_.now() < until) std::this_thread::yield();
      came_at_ = loop_.now();
      task();
    });
  }

 private:
  std::atomic<Nanos> came_at_{0};
  OtherThread other_;
};

TEST_F(SleepingLeadTest, TheLeaderRunsWhatItsTimerBrings) {
  const Seen seen = watch_until([](const Seen& one) { return one.here > 0; },
                                [this](const End& end) {
                                  loop_.start_timer(loop_.now() + 2 * kMillisecond,
                                                    [end] { end->complete(std::this_thread::get_id()); });
                                });
  EXPECT_GT(seen.here, 0);
}

TEST_F(SleepingLeadTest, WhatIsPostedWakesTheLeader) {
  const Seen seen =
      watch_until([](const Seen& one) { return one.here > 0 && 2 * one.slow <= one.led; },
                  [this](const End& end) {
                    later([this, end] { loop_.post_or_drop([end] { end->complete(std::this_thread::get_id()); }); });
                  });
  EXPECT_GT(seen.here, 0);
  EXPECT_LE(2 * seen.slow, seen.led);
}

TEST_F(SleepingLeadTest, AnEndThatAnotherThreadBringsWakesTheLeader) {
  const Seen seen =
      watch_quick([this](const End& end) { later([end] { end->complete(std::this_thread::get_id()); }); });
  EXPECT_EQ(seen.here, 0);
}

TEST_F(SleepingLeadTest, TheLoopsOwnThreadServesLongWaits) {
  const Seen seen = watch([this](const End& end) {
    loop_.start_timer(loop_.now() + 30 * kMillisecond, [end] { end->complete(std::this_thread::get_id()); });
  });
  EXPECT_LT(seen.here, 20);
}

TEST_F(SleepingLeadTest, AStopMeetsALeaderThatSleeps) {
  lead_once();
  auto end = Future<Unit>::make();
  const Lead lead(loop_);
  loop_.post_or_drop([this, end] {
    later([this, end] {
      loop_.stop();
      end->complete(Unit{});
    });
  });
  EXPECT_TRUE(wait(*end, kLong));
}

TEST_F(LeadTest, WhoRunsWorkOfOthersForLongHandsOver) {
  // Each task posts the next one, for 20 ms; the one awaited comes last. In one of some rounds, as a machine may stop
  // for as long, and the loop's own thread may be the first.
  std::atomic<int> here{0};
  std::atomic<int> elsewhere{0};
  const std::thread::id self = std::this_thread::get_id();
  for (int round = 0; round < 200 && (here == 0 || elsewhere == 0); ++round) {
    lead_once();
    here = elsewhere = 0;
    auto done = Future<Unit>::make();
    const Nanos until = loop_.now() + 20 * kMillisecond;
    std::function<void()> turn = [&] {
      ++(std::this_thread::get_id() == self ? here : elsewhere);
      if (loop_.now() >= until) {
        done->complete(Unit{});
      } else {
        loop_.post_or_drop([&turn] { turn(); });
      }
    };
    const Lead lead(loop_);
    loop_.post_or_drop([&turn] { turn(); });
    ASSERT_TRUE(wait(*done, kLong));
  }
  EXPECT_GT(here, 0);
  EXPECT_GT(elsewhere, 0);
}

TEST_F(LeadTest, WhatNobodyWaitsForRunsSoonOrWithTheNextTask) {
  lead_once();
  auto soon = Future<std::thread::id>::make();
  ASSERT_TRUE(loop_.post_soon([soon] { soon->complete(std::this_thread::get_id()); }));
  ASSERT_TRUE(wait(*soon, kLong));
  EXPECT_NE(soon->value(), std::this_thread::get_id());

  lead_once();
  bool ran = false;
  ASSERT_TRUE(loop_.post_soon([&ran] { ran = true; }));
  ask();
  EXPECT_TRUE(ran);
}

TEST_F(LeadTest, PoolThreadsThatWaitLead) {
  Pool pool("pool", 2, {});
  // On a busy machine the loop's own thread may be the first for long.
  for (int i = 0; i < 500 || (loop_.leads() == 0 && i < 100000); ++i) {
    auto done = Future<bool>::make();
    pool.post_or_drop([this, done] { done->complete(ask() == std::this_thread::get_id()); });
    ASSERT_TRUE(wait(*done, kLong));
  }
  EXPECT_GT(loop_.leads(), 0u);
}

TEST_F(LeadTest, ManyThreadsAskAndPost) {
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, &ran, t] {
      for (int i = 0; i < 2000; ++i) {
        if ((i + t) % 3 == 0) loop_.post_or_drop([&ran] { ++ran; });
        ask();
        if ((i + t) % 64 == 0) wait(*Future<Unit>::make(), (i % 100) * kMicrosecond);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  loop_.stop();
  EXPECT_GT(ran, 2600);
}

TEST_F(LeadTest, AStopMeetsThreadsThatLead) {
  for (int i = 0; i < 200; ++i) {
    FdLoop loop("stopped", {});
    loop.start();
    std::atomic<bool> began{false};
    std::thread asker([&loop, &began] {
      for (;;) {
        auto done = Future<Unit>::make();
        const Lead lead(loop);
        if (!loop.post([owed = Owed(done)] { owed->complete(Unit{}); })) return;
        began = true;
        ASSERT_TRUE(wait(*done, kLong));
      }
    });
    while (!began) std::this_thread::yield();
    loop.stop();
    asker.join();
  }
}

TEST_F(LeadTest, AThreadIsNotEndedWhileItLeads) {
  lead_once();
  std::atomic<bool> has_waited{false};
  std::atomic<bool> goes_on{false};
  std::thread ended([&] {
    auto done = Future<Unit>::make();
    {
      const Lead lead(loop_);
      loop_.post_or_drop([this, done, thread = pthread_self()] {
        pthread_cancel(thread);
        loop_.wake();
        pthread_testcancel();  // the thread would end here
        done->complete(Unit{});
      });
      wait(*done, kLong);
    }
    has_waited = true;
    pthread_testcancel();
    goes_on = true;
  });
  ended.join();
  EXPECT_TRUE(has_waited);
  EXPECT_FALSE(goes_on);
  lead_once();
}

}  // namespace
}  // namespace distag
