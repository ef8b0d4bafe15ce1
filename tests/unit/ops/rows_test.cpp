// Programs over rows: what their operands are, and that each instruction set of this machine gives the same bits.
#include "ops/rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/math.h"

namespace distag::ops {
namespace {

using Numbers = std::vector<float>;

Numbers mixed_numbers(size_t count) {
  Numbers numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = std::sin(static_cast<float>(i) * 1.7f) * 3.0f;
  return numbers;
}

TEST(RowsTest, EachRowMeetsItsOwnOperands) {
  const Numbers x = {1, 2, 3, 4, 5, 6};
  const Numbers same = {10, 20, 30};
  const std::vector<double> factors = {2, 0.5};
  Numbers y(6);
  std::vector<double> sums(2);
  for_rows(
      2, 3,
      [](auto out, auto in, auto all, double factor, double& sum, float shift) DISTAG_INLINE_LAMBDA {
        put(out, in * factor + all + shift);
        sum = sum_of(in);
      },
      Rows(y.data()), Rows(x.data()), SameRow(same.data()), OfEach(factors.data()), OfEach(sums.data()), Same(100.0f));
  EXPECT_EQ(y, (Numbers{112, 124, 136, 112, 122.5, 133}));
  EXPECT_EQ(sums, (std::vector<double>{6, 15}));
}

TEST(RowsTest, RowsMayHaveALengthOfTheirOwn) {
  const Numbers x = {1, 2, 3, 4, 5, 6};
  Numbers y(2);
  for_rows(
      2, 1, [](auto out, auto in) DISTAG_INLINE_LAMBDA { put(out, out + in(1)); }, Rows(y.data()), RowsOf(x.data(), 3));
  EXPECT_EQ(y, (Numbers{2, 5}));
}

TEST(RowsTest, ARowWithoutElementsHasTheSumZero) {
  double sum = 1;
  for_rows(
      1, 0, [](double& to, auto in) DISTAG_INLINE_LAMBDA { to = sum_of(in * 2.0f); }, OfEach(&sum),
      Rows(static_cast<const float*>(nullptr)));
  EXPECT_EQ(sum, 0);
}

TEST(RowsTest, SumsHaveTheOrderOfTheirTerms) {
  for (const int64_t count : {1, 31, 33, 1024, 1025, 5000}) {
    const Numbers x = mixed_numbers(static_cast<size_t>(count));
    double sum = 0;
    double mean = 0;
    for_rows(
        1, count,
        [](double& total, double& average, auto in) DISTAG_INLINE_LAMBDA {
          total = sum_of(in);
          average = mean_of(in);
        },
        OfEach(&sum), OfEach(&mean), Rows(x.data()));
    EXPECT_EQ(sum, reduce_terms<Sum<float>>(count, [&](int64_t i) { return double{x[static_cast<size_t>(i)]}; }));
    EXPECT_EQ(mean, sum / static_cast<double>(count));
  }
}

constexpr auto kProgram = [](auto out, auto in, double& sum) DISTAG_INLINE_LAMBDA {
  const float first = in(0);
  put(out, each(math::Exp(), in - first) * in);
  sum = sum_of(xt::square(xt::cast<double>(in) - static_cast<double>(first)));
};

TEST(RowsTest, EachInstructionSetGivesTheSameBits) {
  using Kernel = RowProgram<decltype(kProgram), Rows<float>, Rows<const float>, OfEach<double>>;
  constexpr int64_t kCount = 1500;
  const Numbers x = mixed_numbers(2 * kCount);
  std::vector<Numbers> results;
  std::vector<std::vector<double>> sums;
  const auto run_by = [&](auto run) {
    results.emplace_back(2 * kCount);
    sums.emplace_back(2);
    run(&kProgram, int64_t{2}, kCount, Rows(results.back().data()), Rows(x.data()), OfEach(sums.back().data()));
  };
  run_by([](auto... args) { simd::run_baseline<Kernel>(args...); });
#if defined(__x86_64__)
  if (simd::registers() != simd::Registers::kBaseline) {
    run_by([](auto... args) { simd::run_avx2<Kernel>(args...); });
  }
  if (simd::registers() == simd::Registers::kAvx512) run_by([](auto... args) { simd::run_avx512<Kernel>(args...); });
#endif
  if (results.size() == 1) GTEST_SKIP() << "this processor has the baseline alone: there is nothing to compare with";
  for (size_t set = 1; set < results.size(); ++set) {
    EXPECT_EQ(results[set], results[0]) << "set " << set;
    EXPECT_EQ(sums[set], sums[0]) << "set " << set;
  }
}

}  // namespace
}  // namespace distag::ops
