#include "spmd/row_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace distag::spmd {
namespace {

std::vector<int64_t> first_rows(const RowOrder& order, uint64_t epoch, int64_t count) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(order.row(epoch, i));
  return rows;
}

TEST(RowOrderTest, IsAPermutationOfEachEpoch) {
  for (int64_t count = 0; count <= 1000; ++count) {
    const RowOrder order(count, static_cast<uint64_t>(count) * 31 + 7);
    for (const uint64_t epoch : {uint64_t{0}, uint64_t{5}}) {
      std::vector<int> times(static_cast<size_t>(count));
      for (const int64_t row : first_rows(order, epoch, count)) {
        ASSERT_TRUE(row >= 0 && row < count) << count;
        ++times[static_cast<size_t>(row)];
      }
      ASSERT_EQ(times, std::vector<int>(static_cast<size_t>(count), 1)) << count;
    }
  }
}

TEST(RowOrderTest, IsTheSameInAllReleases) {
  EXPECT_EQ(first_rows(RowOrder(10, 1), 0, 10), (std::vector<int64_t>{6, 9, 2, 0, 5, 1, 3, 4, 7, 8}));
  EXPECT_EQ(first_rows(RowOrder(10, 1), 1, 10), (std::vector<int64_t>{3, 0, 4, 6, 2, 7, 9, 8, 1, 5}));
  EXPECT_EQ(first_rows(RowOrder(10'000'000'000, 42), 0, 4),
            (std::vector<int64_t>{6588379916, 3060646317, 6799651224, 3308767859}));
  EXPECT_EQ(first_rows(RowOrder(INT64_MAX, 7), 3, 2), (std::vector<int64_t>{5149019774131254329, 2412115958084667913}));
}

TEST(RowOrderTest, HasTheRowsInOrderWithoutASeed) {
  EXPECT_EQ(first_rows(RowOrder(4), 9, 4), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(RowOrderTest, DiffersBySeedAndEpoch) {
  const std::vector<int64_t> rows = first_rows(RowOrder(100, 1), 0, 100);
  EXPECT_NE(first_rows(RowOrder(100, 2), 0, 100), rows);
  EXPECT_NE(first_rows(RowOrder(100, uint64_t{1} << 40), 0, 100), rows);
  EXPECT_NE(first_rows(RowOrder(100, 1), 1, 100), rows);
  EXPECT_NE(first_rows(RowOrder(100, 1), uint64_t{1} << 40, 100), rows);
}

}  // namespace
}  // namespace distag::spmd
