#include "tensor/strided.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace distag {
namespace {

// Copies element by element, by the definition of strides.
template <typename T>
std::vector<T> copied_one_by_one(const std::vector<T>& in, const Dims& strides, const Dims& shape) {
  std::vector<T> out;
  for (int64_t i = 0; i < element_count(shape); ++i) {
    int64_t rest = i;
    int64_t place = 0;
    for (size_t d = shape.size(); d-- > 0;) {
      place += rest % shape[d] * strides[d];
      rest /= shape[d];
    }
    out.push_back(in[static_cast<size_t>(place)]);
  }
  return out;
}

template <typename T>
void check_copy(const Dims& shape, const Dims& strides) {
  std::vector<T> in(20000);
  std::iota(in.begin(), in.end(), T(0));
  std::vector<T> out(static_cast<size_t>(element_count(shape)), T(0));
  copy_strided(reinterpret_cast<std::byte*>(out.data()), row_major_strides(shape),
               reinterpret_cast<const std::byte*>(in.data()), strides, shape, sizeof(T));
  EXPECT_EQ(out, copied_one_by_one(in, strides, shape)) << to_string(shape) << " " << to_string(strides);
}

TEST(StridedTest, CopiesEveryLayout) {
  const std::pair<Dims, Dims> layouts[] = {{{}, {}},
                                           {{5}, {1}},
                                           {{5}, {3}},
                                           {{5}, {0}},
                                           {{0, 3}, {3, 1}},
                                           {{70, 90}, {1, 70}},
                                           {{3, 4}, {4, 1}},
                                           {{3, 4}, {0, 1}},
                                           {{3, 4}, {1, 0}},
                                           {{2, 3, 4}, {1, 2, 6}},
                                           {{2, 3, 4}, {100, 4, 1}},
                                           {{2, 1, 3, 1, 4}, {12, 77, 4, 77, 1}},
                                           {{2, 3, 40, 33}, {9000, 3000, 1, 50}}};
  for (const auto& [shape, strides] : layouts) {
    check_copy<uint8_t>(shape, strides);
    check_copy<float>(shape, strides);
    check_copy<double>(shape, strides);
  }
}

TEST(StridedTest, WritesWithStrides) {
  int64_t in[4] = {1, 2, 3, 4};
  int64_t out[8] = {};
  copy_strided(reinterpret_cast<std::byte*>(out), {1, 4}, reinterpret_cast<const std::byte*>(in), {2, 1}, {2, 2}, 8);
  EXPECT_EQ(std::vector<int64_t>(out, out + 8), (std::vector<int64_t>{1, 3, 0, 0, 2, 4, 0, 0}));
}

TEST(StridedTest, KnowsRowMajor) {
  EXPECT_TRUE(is_row_major({2, 3}, {3, 1}));
  EXPECT_FALSE(is_row_major({2, 3}, {1, 2}));
  EXPECT_TRUE(is_row_major({1, 3, 1}, {99, 1, 7}));
  EXPECT_TRUE(is_row_major({}, {}));
  EXPECT_TRUE(is_row_major({4, 0}, {9, 9}));
  EXPECT_FALSE(is_row_major({3}, {0}));
}

}  // namespace
}  // namespace distag
