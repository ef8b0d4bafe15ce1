#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "apply_op.h"
#include "plain_philox.h"

namespace distag::testing {
namespace {

TEST(CreationTest, Fills) {
  EXPECT_EQ(floats_of(run("zeros", {}, {{"shape", Dims{2}}})), (std::vector<float>{0, 0}));
  EXPECT_EQ(integers_of(run("ones", {}, {{"shape", Dims{2}}, {"dtype", Dtype::kInt64}})), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(run("full", {}, {{"value", 2.5}}).item(), 2.5);
  EXPECT_EQ(flags_of(run("full", {}, {{"value", 5.0}, {"shape", Dims{1}}, {"dtype", "bool"}})),
            (std::vector<uint8_t>{1}));
  EXPECT_EQ(run("zeros", {}, {{"shape", Dims{0, 3}}}).count(), 0);
  EXPECT_EQ(failure_of([] {
              run("full", {}, {{"value", 0.5}, {"dtype", "int64"}});
            }),
            "INVALID_ARGUMENT: full: 0.5 is no int64");
  EXPECT_EQ(failure_of([] {
              run("zeros", {}, {{"shape", Dims{-1}}});
            }),
            "INVALID_ARGUMENT: shape [-1] has a negative size");
}

TEST(CreationTest, CountsInSteps) {
  auto arange = [](double start, double stop, double step) {
    return values_of<double>(
        run("arange", {}, {{"start", start}, {"stop", stop}, {"step", step}, {"dtype", Dtype::kFloat64}}));
  };
  EXPECT_EQ(arange(0, 3, 1), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(arange(1, 2, 0.25), (std::vector<double>{1, 1.25, 1.5, 1.75}));
  EXPECT_EQ(arange(3, 0, -2), (std::vector<double>{3, 1}));
  EXPECT_EQ(arange(3, 0, 1), (std::vector<double>{}));
  EXPECT_EQ(integers_of(run("arange", {}, {{"stop", 3}, {"dtype", Dtype::kInt64}})), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(failure_of([&] { arange(0, 1, 0); }).find("INVALID_ARGUMENT: arange"), 0u);
  EXPECT_EQ(failure_of([&] { arange(0, INFINITY, 1); }).find("INVALID_ARGUMENT: arange"), 0u);
  EXPECT_EQ(failure_of([&] { arange(0, 1e300, 1e-10); }).find("INVALID_ARGUMENT: arange"), 0u);
}

Tensor random(const char* op, int64_t seed, const Dims& shape, Dtype dtype) {
  return run(op, {}, {{"seed", seed}, {"shape", shape}, {"dtype", dtype}});
}

TEST(RandomTest, GivesTheSameNumbersEverywhere) {
  // From the known answer for counter 0 and key 0: words 0 and 1, then 2 and 3.
  auto uniform = values_of<double>(random("rand", 0, {2}, Dtype::kFloat64));
  EXPECT_EQ(uniform[0], static_cast<double>(0xe169c58d6627e8d5u >> 11) * 0x1p-53);
  EXPECT_EQ(uniform[1], static_cast<double>(0x9b00dbd8bc57ac4cu >> 11) * 0x1p-53);
  EXPECT_EQ(random("rand", 0, {1}, Dtype::kFloat32).item(), static_cast<double>(0xe169c58du >> 8) * 0x1p-24);
  auto normal = values_of<double>(random("randn", 0, {2}, Dtype::kFloat64));
  double radius = std::sqrt(-2 * std::log1p(-uniform[0]));
  EXPECT_NEAR(normal[0], radius * std::cos(2 * M_PI * uniform[1]), 1e-15);
  EXPECT_NEAR(normal[1], radius * std::sin(2 * M_PI * uniform[1]), 1e-15);
  EXPECT_EQ(random("randn", 0, {1}, Dtype::kFloat32).item(), static_cast<double>(static_cast<float>(normal[0])));
}

TEST(RandomTest, DependsOnSeedAndPlaceAlone) {
  auto seven = values_of<double>(random("randn", 5, {7}, Dtype::kFloat64));
  auto six = values_of<double>(random("randn", 5, {2, 3}, Dtype::kFloat64));
  EXPECT_TRUE(std::equal(six.begin(), six.end(), seven.begin()));
  EXPECT_NE(values_of<double>(random("randn", 6, {7}, Dtype::kFloat64)), seven);
  EXPECT_NE(values_of<double>(random("randn", 5 + (int64_t{1} << 32), {7}, Dtype::kFloat64)), seven);
  EXPECT_EQ(failure_of([] { random("rand", 1, {1}, Dtype::kInt64); }).find("UNSUPPORTED: rand: dtype int64"), 0u);
}

// The mask is that of rand of the seed, whatever the layout of x; the rest is scaled.
TEST(RandomTest, DropoutTakesTheNumbersOfRand) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    for (const Dims& shape : {Dims{}, Dims{1}, Dims{4, 0}, Dims{7}, Dims{3, 5, 2}, Dims{2000}}) {
      for (const double p : {0.0, 0.25, 0.9, 1.0}) {
        const Tensor uniform = run("cast", {random("rand", 9, shape, dtype)}, {{"dtype", Dtype::kFloat64}});
        const Tensor x = random("randn", 10, shape, dtype);
        const Tensor y = run("dropout", {x}, {{"p", p}, {"seed", 9}});
        EXPECT_EQ(y.dtype(), dtype);
        const auto numbers = values_of<double>(uniform);
        const auto given = values_of<double>(run("cast", {x}, {{"dtype", Dtype::kFloat64}}));
        const auto got = values_of<double>(run("cast", {y}, {{"dtype", Dtype::kFloat64}}));
        const double epsilon = dtype == Dtype::kFloat32 ? 0x1p-22 : 0x1p-50;
        ASSERT_EQ(got.size(), numbers.size());
        for (size_t i = 0; i < got.size(); ++i) {
          const double expected = numbers[i] < p ? 0 : given[i] / (1 - p);
          ASSERT_NEAR(got[i], expected, std::fabs(expected) * epsilon) << i;
        }
      }
    }
  }
  const Tensor infinite = tensor_of<double>({4}, {INFINITY, NAN, -INFINITY, NAN});
  EXPECT_EQ(values_of<double>(run("dropout", {infinite}, {{"p", 1.0}, {"seed", 1}})), std::vector<double>(4, 0.0));
  EXPECT_EQ(values_of<double>(run("dropout", {with_gaps(random("randn", 1, {3, 5}, Dtype::kFloat64))}, {{"seed", 4}})),
            values_of<double>(run("dropout", {random("randn", 1, {3, 5}, Dtype::kFloat64)}, {{"seed", 4}})));
  for (const double p : {-0.1, 1.5, static_cast<double>(NAN)}) {
    EXPECT_EQ(failure_of([&] {
                run("dropout", {infinite}, {{"p", p}, {"seed", 1}});
              }).find("INVALID_ARGUMENT: dropout: p "),
              0u);
  }
  EXPECT_EQ(failure_of([&] {
              run("dropout", {run("ones", {}, {{"dtype", Dtype::kInt64}})}, {{"seed", 1}});
            }).find("UNSUPPORTED: dropout: dtype int64"),
            0u);
  EXPECT_EQ(failure_of([&] { run("dropout", {infinite}); }).find("INVALID_ARGUMENT: dropout"), 0u);
}

// Long rows go through vectors of whatever width the machine has, short ones and rests do not.
TEST(RandomTest, GivesTheSameNumbersInRowsOfAnyLength) {
  constexpr int64_t kLong = 1003;
  constexpr int64_t kSeed = (int64_t{7} << 32) + 5;
  for (Dtype dtype : {Dtype::kFloat32, Dtype::kFloat64}) {
    for (const char* op : {"rand", "randn"}) {
      Tensor all = random(op, kSeed, {kLong}, dtype);
      for (int64_t count = 1; count <= kLong; ++count) {
        Tensor some = random(op, kSeed, {count}, dtype);
        ASSERT_EQ(std::memcmp(some.data(), all.data(), some.byte_size()), 0) << op << " " << count;
      }
    }
  }
}

TEST(RandomTest, TakesEveryPairFromItsBlock) {
  constexpr uint64_t kSeed = (uint64_t{7} << 32) + 5;
  auto wide = values_of<double>(random("rand", kSeed, {1000}, Dtype::kFloat64));
  auto narrow = floats_of(random("rand", kSeed, {1000}, Dtype::kFloat32));
  for (uint64_t block = 0; block < 500; ++block) {
    for (size_t odd = 0; odd < 2; ++odd) {
      const uint64_t bits = plain_block(kSeed, block)[odd];
      EXPECT_EQ(wide[2 * block + odd], static_cast<double>(bits >> 11) * 0x1p-53);
      EXPECT_EQ(narrow[2 * block + odd], static_cast<float>(bits >> 40) * 0x1p-24f);
    }
  }
}

TEST(RandomTest, HasTheMomentsOfItsDistribution) {
  auto moments = [](const std::vector<float>& values) {
    double sum = 0;
    double squares = 0;
    for (float value : values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    auto count = static_cast<double>(values.size());
    return std::pair(sum / count, squares / count);
  };
  auto uniform = floats_of(random("rand", 1, {200000}, Dtype::kFloat32));
  EXPECT_NEAR(moments(uniform).first, 0.5, 0.005);
  EXPECT_NEAR(moments(uniform).second, 1.0 / 3, 0.005);
  EXPECT_GE(*std::min_element(uniform.begin(), uniform.end()), 0.0f);
  EXPECT_LT(*std::max_element(uniform.begin(), uniform.end()), 1.0f);
  auto normal = floats_of(random("randn", 1, {200000}, Dtype::kFloat32));
  EXPECT_NEAR(moments(normal).first, 0.0, 0.01);
  EXPECT_NEAR(moments(normal).second, 1.0, 0.02);
}

}  // namespace
}  // namespace distag::testing
