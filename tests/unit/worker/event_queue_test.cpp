// Events on their way to the host that takes them.
#include "worker/event_queue.h"

#include <gtest/gtest.h>

#include "worker/event_taker.h"

namespace distag {
namespace {

OneEvent event(uint64_t tag) {
  OneEvent made(1);
  made.front().tag = tag;
  return made;
}

class EventQueueTest : public ::testing::Test {
 protected:
  uint64_t take() {
    OneEvent taken;
    EXPECT_EQ(taker_.take(taken, 0), EventTaker::Outcome::kCame);
    return taken.empty() ? 0 : taken.front().tag;
  }

  EventQueue queue_;
  HostExecutor host_;
  EventTaker taker_{queue_, host_, this};
};

TEST_F(EventQueueTest, TheFirstComesFirstAndOneThatIsPutBackAgain) {
  queue_.push(event(1));
  queue_.push(event(2));
  queue_.put_back(queue_.pop());
  EXPECT_EQ(take(), 1u);
  EXPECT_EQ(take(), 2u);
  OneEvent none;
  EXPECT_EQ(taker_.take(none, 0), EventTaker::Outcome::kTimeIsUp);
}

TEST_F(EventQueueTest, ATaskOfTheHostMayBringOne) {
  ASSERT_TRUE(host_.post([this] { queue_.push(event(3)); }));
  EXPECT_EQ(taker_.wait_for_work(kForever), EventTaker::Outcome::kCame);
  EXPECT_TRUE(queue_.is_empty());
  EXPECT_EQ(take(), 3u);
}

TEST_F(EventQueueTest, EventsThatAreThereMayBeTakenAfterTheWorkerHasLeft) {
  const auto next = Future<Unit>::make();
  queue_.add_waiter(next);
  queue_.push(event(4));
  EXPECT_TRUE(next->is_done());
  queue_.mark_left();
  EXPECT_EQ(take(), 4u);
  OneEvent none;
  EXPECT_EQ(taker_.take(none, kForever), EventTaker::Outcome::kNothingMore);
  EXPECT_EQ(taker_.wait_for_work(kForever), EventTaker::Outcome::kNothingMore);
}

TEST_F(EventQueueTest, AFutureThatNobodyTookIsLetGoOf) {
  int handle = 1;
  OneEvent posted = event(5);
  posted.front().future = {&handle, [](void* held) { --*static_cast<int*>(held); }};
  queue_.push(std::move(posted));
  queue_.clear();
  EXPECT_EQ(handle, 0);
}

}  // namespace
}  // namespace distag
