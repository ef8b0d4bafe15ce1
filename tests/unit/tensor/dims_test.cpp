#include "tensor/dims.h"

#include <gtest/gtest.h>

#include "support/expect.h"

namespace distag {
namespace {

using testing::status_of;

TEST(DimsTest, HoldsUpTo16Items) {
  Dims dims{2, 3};
  dims.push_back(4);
  EXPECT_EQ(to_string(dims), "[2, 3, 4]");
  dims.pop_back();
  EXPECT_EQ(dims, (Dims{2, 3}));
  dims.resize(16, 1);
  EXPECT_EQ(dims[15], 1);
  EXPECT_EQ(status_of([&] { dims.push_back(1); }), Status::kInvalidArgument);
  EXPECT_EQ(status_of([&] { dims.resize(17); }), Status::kInvalidArgument);
  std::vector<int64_t> many(17, 1);
  EXPECT_EQ(status_of([&] { Dims{std::span<const int64_t>(many)}; }), Status::kInvalidArgument);
}

TEST(DimsTest, CountsElements) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({2, 0, 4}), 0);
}

TEST(DimsTest, RefusesCountsThatDoNotFit) {
  EXPECT_EQ(status_of([] { element_count({2, -1}); }), Status::kInvalidArgument);
  EXPECT_EQ(status_of([] { element_count({int64_t{1} << 32, int64_t{1} << 31}); }), Status::kInvalidArgument);
  EXPECT_EQ(status_of([] { element_count({int64_t{1} << 60}, 8); }), Status::kInvalidArgument);
  // Strides of it would not fit, although it has no elements.
  EXPECT_EQ(status_of([] { element_count({0, int64_t{1} << 62, 8}); }), Status::kInvalidArgument);
}

TEST(DimsTest, GivesRowMajorStrides) {
  EXPECT_EQ(row_major_strides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(row_major_strides({}), Dims());
  EXPECT_EQ(row_major_strides({2, 0, 4}), (Dims{4, 4, 1}));
}

}  // namespace
}  // namespace distag
