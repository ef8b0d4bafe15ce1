#include "base/random.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace distag {
namespace {

TEST(Random, SeededIsSplitMix64) {
  // First outputs for seed 1234567, from the authors' C code.
  SeededRandom random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(Random, SystemGivesDifferentNumbers) {
  SystemRandom random;
  EXPECT_NE(random.next(), random.next());
}

TEST(Clock, DeadlineDoesNotOverflow) {
  EXPECT_EQ(deadline_after(100, 5), 105);
  EXPECT_EQ(deadline_after(100, kForever), kNever);
  EXPECT_EQ(deadline_after(100, kNever), kNever);
  EXPECT_EQ(deadline_after(100, kNever - 50), kNever);
}

TEST(Clock, SteadyDoesNotGoBack) {
  SteadyClock clock;
  const Nanos first = clock.now();
  EXPECT_GT(first, 0);
  EXPECT_GE(clock.now(), first);
}

}  // namespace
}  // namespace distag
