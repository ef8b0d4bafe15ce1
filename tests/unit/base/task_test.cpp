#include "base/task.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace distag {
namespace {

TEST(Task, OwnsWhatItCaptures) {
  auto owned = std::make_unique<int>(7);
  int seen = 0;
  UniqueFunction<void(int)> function = [owned = std::move(owned), &seen](int plus) { seen = *owned + plus; };
  UniqueFunction<void(int)> moved = std::move(function);
  EXPECT_FALSE(function);  // moved from means empty
  moved(3);
  EXPECT_EQ(seen, 10);
}

TEST(Task, DestroysCapturesOnceWhetherSmallOrLarge) {
  auto token = std::make_shared<int>(0);
  {
    Task small = [token] {};
    Task large = [token, room = std::array<char, 200>()] { (void)room; };
    EXPECT_EQ(token.use_count(), 3);
    Task other = std::move(large);
    small = std::move(other);
    EXPECT_EQ(token.use_count(), 2);
    small.reset();
    EXPECT_EQ(token.use_count(), 1);
    EXPECT_FALSE(small);
  }
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace distag
