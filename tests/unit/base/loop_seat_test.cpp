#include "base/loop_seat.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/future.h"

namespace distag {
namespace {

using Urgency = LoopSeat::Urgency;
using Sight = LoopSeat::Sight;

class LoopSeatTest : public testing::Test {
 protected:
  LoopSeatTest() { seat_.begin(); }

  bool post(Urgency urgency) {
    return seat_.post([](TaskQueue& queue) { queue.push([] {}); }, urgency);
  }
  size_t take_posted() {
    TaskQueue tasks;
    seat_.take_posted(tasks);
    size_t count = 0;
    for (; !tasks.empty(); ++count) tasks.pop();
    return count;
  }

  SteadyClock clock_;
  Poller poller_;
  LoopSeat seat_{poller_, clock_};
  Future<Unit> awaited_;
};

TEST_F(LoopSeatTest, TheSeatIsFreeWhileTheLoopSleepsAndALeaderGivesItBack) {
  EXPECT_FALSE(seat_.take(awaited_));
  ASSERT_TRUE(seat_.leave());
  ASSERT_TRUE(seat_.take(awaited_));
  EXPECT_EQ(seat_.takes(), 1U);
  EXPECT_FALSE(seat_.come_back());
  EXPECT_TRUE(seat_.give_back(false));
  EXPECT_TRUE(seat_.come_back());
  EXPECT_FALSE(seat_.take(awaited_));
}

TEST_F(LoopSeatTest, ALoopWithATaskKeepsItsSeat) {
  EXPECT_TRUE(post(Urgency::kNow));
  EXPECT_FALSE(seat_.leave());
  EXPECT_EQ(take_posted(), 1U);
  EXPECT_TRUE(seat_.leave());
}

TEST_F(LoopSeatTest, ATaskOfAThreadThatIsAboutToLeadIsLeftToIt) {
  EXPECT_TRUE(post(Urgency::kByPoster));
  EXPECT_EQ(seat_.look(false), Sight::kEnd);
  EXPECT_EQ(seat_.look(true), Sight::kWork);
  EXPECT_TRUE(seat_.leave());
  seat_.wake();  // it does not lead after all
  EXPECT_TRUE(seat_.come_back());
  EXPECT_EQ(seat_.look(false), Sight::kWork);
}

TEST_F(LoopSeatTest, ALeaderDoesNotRestPastATask) {
  ASSERT_TRUE(seat_.leave());
  ASSERT_TRUE(seat_.take(awaited_));
  EXPECT_TRUE(seat_.begin_rest(false));
  seat_.end_rest();
  EXPECT_FALSE(seat_.begin_rest(true));
  EXPECT_TRUE(post(Urgency::kNow));
  EXPECT_FALSE(seat_.begin_rest(false));
  EXPECT_FALSE(seat_.give_back(false));
}

TEST_F(LoopSeatTest, AStoppedLoopRunsWhatItHasTakenAndTakesNoMore) {
  EXPECT_TRUE(post(Urgency::kNow));
  EXPECT_TRUE(seat_.stop().has_value());
  EXPECT_FALSE(seat_.stop().has_value());
  EXPECT_FALSE(post(Urgency::kNow));
  EXPECT_EQ(seat_.look(false), Sight::kWork);
  EXPECT_EQ(take_posted(), 1U);
  TaskQueue none;
  EXPECT_FALSE(seat_.take_posted(none));
  EXPECT_FALSE(seat_.leave());
}

TEST_F(LoopSeatTest, AnyThreadMayTouchALoopThatDoesNotRun) {
  EXPECT_TRUE(seat_.is_mine());
  seat_.disown();
  EXPECT_FALSE(seat_.is_mine());
  EXPECT_TRUE(seat_.may_touch());
}

}  // namespace
}  // namespace distag
