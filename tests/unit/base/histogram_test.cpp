#include "base/histogram.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <thread>
#include <vector>

namespace distag {
namespace {

size_t bucket_of(Nanos taken) {
  Histogram histogram;
  histogram.add(taken);
  const Histogram::Counts counts = histogram.counts();
  EXPECT_EQ(std::accumulate(counts.buckets.begin(), counts.buckets.end(), uint64_t{0}), 1u);
  for (size_t i = 0; i < counts.buckets.size(); ++i) {
    if (counts.buckets[i] == 1) return i;
  }
  return counts.buckets.size();
}

TEST(Histogram, EachBucketHasItsUpperBound) {
  for (size_t i = 0; i < Histogram::kBounds.size(); ++i) {
    EXPECT_EQ(bucket_of(Histogram::kBounds[i] - 1), i) << i;
    EXPECT_EQ(bucket_of(Histogram::kBounds[i]), i) << i;
    EXPECT_EQ(bucket_of(Histogram::kBounds[i] + 1), i + 1) << i;
  }
}

TEST(Histogram, AnyTimeHasABucket) {
  EXPECT_EQ(bucket_of(0), 0u);
  EXPECT_EQ(bucket_of(1), 0u);
  EXPECT_EQ(bucket_of(std::numeric_limits<Nanos>::max()), Histogram::kBounds.size());
  for (int digits = 0; digits < 62; ++digits) {
    for (const Nanos taken : {(Nanos{1} << digits) - 1, Nanos{1} << digits, (Nanos{1} << digits) + 1}) {
      size_t expected = 0;
      while (expected < Histogram::kBounds.size() && taken > Histogram::kBounds[expected]) ++expected;
      EXPECT_EQ(bucket_of(taken), expected) << taken;
    }
  }
}

// Clocks of two threads may differ by a moment.
TEST(Histogram, ATimeBelowZeroIsZero) {
  Histogram histogram;
  histogram.add(-5);
  histogram.add(7);
  EXPECT_EQ(histogram.counts().sum, 7);
  EXPECT_EQ(histogram.counts().buckets[0], 2u);
}

TEST(Histogram, LosesNothingOfManyThreads) {
  constexpr int kThreads = 4, kEach = 10000;
  Histogram histogram;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&histogram] {
      for (int k = 0; k < kEach; ++k) histogram.add(k % 2 == 0 ? kMicrosecond : kSecond);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Histogram::Counts counts = histogram.counts();
  EXPECT_EQ(counts.buckets[0], uint64_t{kThreads} * kEach / 2);
  EXPECT_EQ(std::accumulate(counts.buckets.begin(), counts.buckets.end(), uint64_t{0}), uint64_t{kThreads} * kEach);
  EXPECT_EQ(counts.sum, kThreads * kEach / 2 * (kMicrosecond + kSecond));
}

}  // namespace
}  // namespace distag
