#include "base/task_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace distag {
namespace {

void run_all(TaskQueue& queue) {
  while (!queue.empty()) queue.pop()();
}

TEST(TaskQueue, RunsTasksInOrderWhereverTheirPlaceIs) {
  TaskQueue queue;
  TaskPlace place;
  std::string order;
  queue.push([&order] { order += 'a'; });
  queue.push(place, [&order] { order += 'b'; });
  queue.push([&order] { order += 'c'; });
  run_all(queue);
  EXPECT_EQ(order, "abc");
}

TEST(TaskQueue, APlaceIsFreeOnceItsTaskIsOut) {
  TaskQueue queue;
  TaskPlace place;
  int left = 3;
  queue.push(place, [] {});
  while (!queue.empty()) {
    queue.pop();
    if (--left > 0) queue.push(place, [] {});
  }
  EXPECT_EQ(left, 0);
}

TEST(TaskQueue, ATaskMayHoldItsPlace) {
  TaskQueue queue;
  auto place = std::make_shared<TaskPlace>();
  const std::weak_ptr<TaskPlace> watched = place;
  TaskPlace& of_it = *place;
  queue.push(of_it, [place = std::move(place)] {});
  EXPECT_FALSE(watched.expired());
  run_all(queue);
  EXPECT_TRUE(watched.expired());
}

TEST(TaskQueue, DestroysTheTasksThatAreLeft) {
  auto token = std::make_shared<int>(0);
  TaskPlace place;
  {
    TaskQueue queue;
    queue.push([token] {});
    queue.push(place, [token] {});
    EXPECT_EQ(token.use_count(), 3);
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(TaskQueue, SwapsItsTasks) {
  TaskQueue queue;
  TaskQueue batch;
  std::string order;
  queue.push([&order] { order += 'a'; });
  batch.swap(queue);
  EXPECT_TRUE(queue.empty());
  queue.push([&order] { order += 'b'; });
  run_all(batch);
  batch.swap(queue);
  run_all(batch);
  EXPECT_EQ(order, "ab");
}

}  // namespace
}  // namespace distag
