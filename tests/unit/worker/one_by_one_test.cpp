#include "worker/one_by_one.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace distag {
namespace {

Nanos now() { return SteadyClock().now(); }

TEST(OneByOneTest, AStepIsTakenUntilItSucceedsAndNeverAgain) {
  OneByOne once;
  int taken = 0;
  const auto step = [&taken] { return ++taken == 2; };
  EXPECT_FALSE(once.run(kNever, step));
  EXPECT_FALSE(once.is_done());
  EXPECT_TRUE(once.run(kNever, step));
  EXPECT_TRUE(once.is_done());
  EXPECT_TRUE(once.run(kNever, step));
  EXPECT_EQ(taken, 2);
}

TEST(OneByOneTest, ASecondCallerWaitsForItsTurnAsLongAsItMay) {
  OneByOne once;
  bool is_taken = false;
  EXPECT_TRUE(once.run(kNever, [&once, &is_taken] {
    EXPECT_FALSE(once.run(now(), [&is_taken] { return is_taken = true; }));
    return true;
  }));
  EXPECT_FALSE(is_taken);
}

TEST(OneByOneTest, AStepThatThrowsGivesItsTurnBack) {
  OneByOne once;
  EXPECT_THROW(once.run(kNever, []() -> bool { throw std::runtime_error("it"); }), std::runtime_error);
  EXPECT_TRUE(once.run(now(), [] { return true; }));
}

}  // namespace
}  // namespace distag
