#include "base/strand.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "base/future.h"
#include "base/pool.h"

namespace distag {
namespace {

TEST(StrandTest, RunsTasksOneAtATimeInTheirOrder) {
  Pool pool("strand", 4, {});
  auto strand = std::make_shared<Strand>(pool);
  std::vector<int> order;
  std::atomic<int> running{0};
  auto ended = Future<Unit>::make();
  constexpr int kTasks = 2000;
  for (int i = 0; i < kTasks; ++i) {
    strand->post_or_drop([&, i] {
      EXPECT_EQ(++running, 1);
      order.push_back(i);
      --running;
      if (i == kTasks - 1) ended->complete(Unit{});
    });
  }
  ASSERT_TRUE(wait(*ended, 120 * kSecond));
  for (int i = 0; i < kTasks; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(StrandTest, TakesTasksFromManyThreadsAndFromItsOwnTasks) {
  Pool pool("strand", 2, {});
  auto strand = std::make_shared<Strand>(pool);
  int count = 0;  // only the strand touches it
  auto ended = Future<Unit>::make();
  auto add = [&] {
    if (++count == 4 * 500 * 2) ended->complete(Unit{});
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        strand->post_or_drop([&] {
          add();
          strand->post_or_drop(add);
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(wait(*ended, 120 * kSecond));
}

// A task that waits for a reply from the strand is never left in a queue that no thread runs.
TEST(StrandTest, TasksEndWithTheExecutor) {
  auto owed = Future<Unit>::make();
  auto late = Future<Unit>::make();
  auto begun = Future<Unit>::make();
  // No wait of a Future, which would give the thread's place to the strand.
  std::promise<void> go_on;
  Pool pool("strand", 1, {});
  pool.post_or_drop([begun, &go_on] {
    begun->complete(Unit{});
    go_on.get_future().wait();
  });
  ASSERT_TRUE(wait(*begun, 120 * kSecond));
  auto strand = std::make_shared<Strand>(pool);
  EXPECT_TRUE(strand->post([owed = Owed(owed)] { owed->complete(Unit{}); }));
  EXPECT_TRUE(strand->post([] { FAIL(); }));
  EXPECT_FALSE(pool.stop(0));  // drops the strand's turn
  ASSERT_TRUE(owed->is_done());
  EXPECT_EQ(owed->error()->status(), Status::kCancelled);
  EXPECT_FALSE(strand->post([late = Owed(late)] { late->complete(Unit{}); }));
  EXPECT_TRUE(late->is_done());
  go_on.set_value();
}

}  // namespace
}  // namespace distag
