#include "base/fifo.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>

#include "base/random.h"

namespace distag {
namespace {

TEST(Fifo, DoesAsADequeDoes) {
  SeededRandom random(1);
  Fifo<std::unique_ptr<int>> queue;
  std::deque<int> expected;
  for (int i = 0; i < 100'000; ++i) {
    // The queue grows for a while, then it shrinks.
    const uint64_t push_below = i / 1000 % 2 == 0 ? 70 : 30;
    if (random.next() % 100 < push_below) {
      queue.push_back(std::make_unique<int>(i));
      expected.push_back(i);
    } else if (!expected.empty() && random.next() % 8 == 0) {
      const size_t place = random.next() % expected.size();
      queue.erase(place);
      expected.erase(expected.begin() + static_cast<ptrdiff_t>(place));
    } else if (!expected.empty()) {
      ASSERT_EQ(*queue.take_front(), expected.front());
      expected.pop_front();
    }
    ASSERT_EQ(queue.size(), expected.size());
    ASSERT_EQ(queue.empty(), expected.empty());
    if (expected.empty()) continue;
    ASSERT_EQ(*queue.front(), expected.front());
    ASSERT_EQ(*queue.back(), expected.back());
    const size_t place = random.next() % expected.size();
    ASSERT_EQ(*queue[place], expected[place]);
  }
}

TEST(Fifo, HoldsNothingOfWhatWasTaken) {
  Fifo<std::shared_ptr<int>> queue;
  const auto one = std::make_shared<int>(1);
  for (int i = 0; i < 3; ++i) queue.push_back(one);
  queue.take_front();
  EXPECT_EQ(one.use_count(), 3);
  queue.erase(0);
  EXPECT_EQ(one.use_count(), 2);
  queue.clear();
  EXPECT_EQ(one.use_count(), 1);
}

}  // namespace
}  // namespace distag
