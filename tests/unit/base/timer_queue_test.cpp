#include "base/timer_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace distag {
namespace {

void run_due(TimerQueue& queue, Nanos now) {
  while (Task task = queue.take_due(now)) task();
}

TEST(TimerQueue, RunsByTimeAndThenByOrder) {
  TimerQueue queue;
  std::string order;
  queue.add(20, [&order] { order += 'c'; });
  queue.add(10, [&order] { order += 'a'; });
  queue.add(10, [&order] { order += 'b'; });
  EXPECT_EQ(queue.next_due(), 10);
  run_due(queue, 9);
  EXPECT_EQ(order, "");
  run_due(queue, 10);
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(queue.next_due(), 20);
  run_due(queue, 100);
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(queue.next_due(), kNever);
}

TEST(TimerQueue, RunsTasksAtPlacesOfOthersByTimeToo) {
  TimerQueue queue;
  TaskPlace late, early, same;
  std::string order;
  queue.add(late, 30, [&order] { order += 'd'; });
  queue.add(20, [&order] { order += 'c'; });
  queue.add(early, 10, [&order] { order += 'a'; });
  queue.add(same, 10, [&order] { order += 'b'; });
  EXPECT_EQ(queue.size(), 4u);
  EXPECT_EQ(queue.next_due(), 10);
  run_due(queue, 10);
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(queue.next_due(), 20);
  run_due(queue, 20);
  EXPECT_EQ(queue.next_due(), 30);
  queue.add(early, 40, [] { FAIL(); });
  run_due(queue, 30);
  EXPECT_EQ(order, "abcd");
  queue.clear();
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(queue.next_due(), kNever);
}

TEST(TimerQueue, CancelDestroysTheTaskAtOnce) {
  TimerQueue queue;
  auto token = std::make_shared<int>(0);
  const auto id = queue.add(10, [token] { FAIL(); });
  queue.cancel(id);
  EXPECT_EQ(token.use_count(), 1);
  EXPECT_EQ(queue.next_due(), kNever);
  queue.cancel(id);
  queue.cancel(0);
  run_due(queue, 100);
}

TEST(TimerQueue, IdsNeverRepeat) {
  TimerQueue queue;
  std::set<TimerQueue::Id> ids;
  for (int i = 0; i < 1000; ++i) {
    const auto id = queue.add(i, [] {});
    EXPECT_TRUE(ids.insert(id).second);
    EXPECT_NE(id, 0u);
    if (i % 3 != 0) queue.cancel(id);
  }
  EXPECT_EQ(queue.size(), 334u);
}

TEST(TimerQueue, StaleIdDoesNotCancelTheNextTimerInItsSlot) {
  TimerQueue queue;
  bool ran = false;
  const auto first = queue.add(1, [] {});
  run_due(queue, 1);
  queue.add(2, [&ran] { ran = true; });
  queue.cancel(first);
  run_due(queue, 2);
  EXPECT_TRUE(ran);
}

TEST(TimerQueue, CancelledTaskMayUseTheQueueWhenDestroyed) {
  TimerQueue queue;
  const auto other = queue.add(5, [] { FAIL(); });
  std::shared_ptr<int> guard(new int, [&queue, other](int* value) {
    delete value;
    queue.cancel(other);
  });
  const auto id = queue.add(3, [guard] {});
  guard.reset();
  queue.cancel(id);
  EXPECT_EQ(queue.size(), 0u);
}

}  // namespace
}  // namespace distag
