#include "spmd/batch_queue.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace distag::spmd {
namespace {

Value numbered(int64_t number) { return Value(number); }

TEST(BatchQueueTest, TheNextIsTheOneThatIsTakenNextWhateverIsReady) {
  BatchQueue queue(5);
  queue.put(numbered(5), 0);
  queue.put(numbered(6), 0);
  EXPECT_EQ(queue.next(), 5u);
  EXPECT_EQ(queue.counts().ready, 2u);
  EXPECT_EQ(queue.take(0)->value().as_int64(), 5);
  EXPECT_EQ(queue.next(), 6u);
  EXPECT_EQ(queue.take(0)->value().as_int64(), 6);
  const auto wait = queue.take(0);
  EXPECT_EQ(queue.next(), 7u);
  queue.put(numbered(7), 0);
  EXPECT_EQ(wait->value().as_int64(), 7);
  EXPECT_EQ(queue.next(), 8u);
}

TEST(BatchQueueTest, AWaitThatWasCancelledOrForgottenTakesNoBatch) {
  BatchQueue queue(0);
  const auto cancelled = queue.take(0);
  const auto forgotten = queue.take(10);
  const auto last = queue.take(20);
  EXPECT_TRUE(cancelled->fail(Error(Status::kCancelled, "by the host")));
  queue.forget(forgotten, 30);
  queue.put(numbered(0), 50);
  ASSERT_TRUE(last->is_done());
  EXPECT_EQ(last->value().as_int64(), 0);
  EXPECT_FALSE(forgotten->is_done());
  EXPECT_EQ(queue.next(), 1u);
  EXPECT_EQ(queue.counts().waited, 50 + 20 + 30);
}

TEST(BatchQueueTest, AFailureComesOnceBehindWhatIsReadyAndThenTheEnd) {
  BatchQueue queue(0);
  queue.put(numbered(0), 0);
  queue.end(Error(Status::kUser, "no such row"), 0);
  queue.put(numbered(1), 0);  // made before the failure was told
  EXPECT_EQ(queue.take(0)->value().as_int64(), 0);
  EXPECT_EQ(queue.take(0)->error()->message(), "no such row");
  EXPECT_TRUE(queue.take(0)->value().is_null());
  EXPECT_EQ(queue.next(), 1u);
}

TEST(BatchQueueTest, OfThoseThatWaitTheFirstGetsTheFailureAndOthersTheEnd) {
  BatchQueue queue(0);
  const auto first = queue.take(0);
  const auto second = queue.take(0);
  queue.end(Error(Status::kUser, "no such row"), 0);
  EXPECT_EQ(first->error()->message(), "no such row");
  EXPECT_TRUE(second->value().is_null());
}

TEST(BatchQueueTest, WhatIsBrokenOffHasNoMoreBatches) {
  BatchQueue queue(0);
  queue.put(numbered(0), 0);
  queue.break_off(Error(Status::kCancelled, "released"));
  queue.put(numbered(1), 0);
  EXPECT_EQ(queue.take(0)->error()->message(), "released");
  EXPECT_EQ(queue.counts().ready, 0u);
}

}  // namespace
}  // namespace distag::spmd
