#include "ops/philox.h"

#include <gtest/gtest.h>

#include <vector>

#include "plain_philox.h"

namespace distag::ops {
namespace {

using testing::plain_block;
using testing::plain_philox;
using Words = testing::PhiloxWords;

// Known answers of the authors (kat_vectors of Random123).
TEST(PhiloxTest, ThePlainOneIsThatOfTheAuthors) {
  EXPECT_EQ(plain_philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t all = 0xffffffff;
  EXPECT_EQ(plain_philox({all, all, all, all}, {all, all}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(plain_philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

template <typename Number>
struct Fill {
  template <size_t kBytes>
  struct Kernel {
    DISTAG_INLINE static void run(Number* out, int64_t blocks, uint64_t seed, uint64_t first) {
      Philox<kBytes>::fill(out, blocks, seed, first);
    }
  };
};

template <typename Number>
std::vector<Number> numbers(size_t most_bytes, int64_t blocks, uint64_t seed, uint64_t first) {
  std::vector<Number> out(static_cast<size_t>(2 * blocks) + 16);
  simd::run_in_vectors<Fill<Number>::template Kernel, Number*, int64_t, uint64_t, uint64_t>(most_bytes, out.data(),
                                                                                            blocks, seed, first);
  return out;
}

// In vectors of each size that this machine has, also where the low word of the counter runs over.
TEST(PhiloxTest, VectorsGiveTheWordsOfEachBlock) {
  for (const size_t most_bytes : {16u, 32u, 64u}) {
    for (const uint64_t seed : {uint64_t{0}, uint64_t{0x123456789abcdef0}, ~uint64_t{0}}) {
      for (const uint64_t first : {uint64_t{0}, uint64_t{0xfffffffa}, uint64_t{1} << 40}) {
        for (const int64_t blocks : {1, 7, 8, 33}) {
          const auto wide = numbers<uint64_t>(most_bytes, blocks, seed, first);
          const auto upper = numbers<uint32_t>(most_bytes, blocks, seed, first);
          for (size_t i = 0; i < static_cast<size_t>(2 * blocks); ++i) {
            const uint64_t plain = plain_block(seed, first + i / 2)[i % 2];
            ASSERT_EQ(wide[i], plain) << most_bytes << " bytes, number " << i;
            ASSERT_EQ(upper[i], plain >> 32) << most_bytes << " bytes, number " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace distag::ops
