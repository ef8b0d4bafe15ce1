// std, norm, avg_pool2d: what reference numbers do not show.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "apply_op.h"

namespace distag::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor gradient(const char* name, const Tensor& x, std::initializer_list<ops::Setting> settings) {
  const ops::Op& op = *ops::find_op(name);
  ops::Saved saved;
  saved.needed = 1;
  const Tensor y = op.forward(std::vector<Tensor>{x}, ops::make_attributes(settings), &saved)[0];
  return op.backward(saved, {floats(y.shape(), std::vector<float>(static_cast<size_t>(y.count()), 1))})[0];
}

TEST(NormsTest, OfCornersAreThoseOfPyTorch) {
  const Tensor x = floats({3}, {3, 0, -4});
  EXPECT_EQ(floats_of(run("norm", {x})), (std::vector<float>{5}));
  EXPECT_EQ(floats_of(run("norm", {x}, {{"p", 1}})), (std::vector<float>{7}));
  EXPECT_EQ(floats_of(run("norm", {x}, {{"p", HUGE_VAL}})), (std::vector<float>{4}));
  for (const double p : {1.0, 2.0, HUGE_VAL}) {
    EXPECT_TRUE(std::isnan(floats_of(run("norm", {floats({2}, {kNan, 1})}, {{"p", p}}))[0])) << p;
    EXPECT_EQ(floats_of(run("norm", {floats({2}, {1, -kInfinity})}, {{"p", p}})), (std::vector<float>{kInfinity}));
    EXPECT_EQ(floats_of(gradient("norm", floats({2}, {0, -0.0f}), {{"p", p}})), (std::vector<float>{0, 0})) << p;
  }
  // Squares of floats that a float does not hold.
  EXPECT_EQ(floats_of(run("norm", {floats({2}, {3e30f, 4e30f})})), (std::vector<float>{5e30f}));
  EXPECT_EQ(floats_of(run("norm", {floats({1}, {-1e-30f})})), (std::vector<float>{1e-30f}));
}

TEST(NormsTest, EqualLargestOnesShareTheGradient) {
  EXPECT_EQ(floats_of(gradient("norm", floats({3}, {-3, 3, 1}), {{"p", HUGE_VAL}})),
            (std::vector<float>{-0.5f, 0.5f, 0}));
}

TEST(NormsTest, OfNothing) {
  const Tensor none = floats({0, 2}, {});
  EXPECT_EQ(floats_of(run("norm", {none}, {{"dims", Dims{0}}})), (std::vector<float>{0, 0}));
  EXPECT_EQ(floats_of(run("norm", {none}, {{"p", 1}})), (std::vector<float>{0}));
  EXPECT_EQ(run("norm", {none}, {{"p", HUGE_VAL}, {"dims", Dims{1}}}).shape(), (Dims{0}));
  EXPECT_EQ(failure_of([&none] {
              run("norm", {none}, {{"p", HUGE_VAL}});
            }),
            "INVALID_ARGUMENT: norm: float32[0, 2] has no elements to choose from");
}

TEST(NormsTest, RefusesOtherOrdersAndDtypes) {
  for (const double p : {0.0, 3.0, -HUGE_VAL}) {
    EXPECT_NE(failure_of([p] {
                run("norm", {floats({1}, {1})}, {{"p", p}});
              }).find("must be 1, 2 or inf"),
              std::string::npos);
  }
  for (const char* op : {"norm", "std"}) {
    EXPECT_EQ(failure_of([op] { run(op, {integers({1}, {1})}); }),
              std::string("UNSUPPORTED: ") + op + ": dtype of int64[1] is not supported: cast it first");
  }
}

TEST(StandardDeviationTest, OfCornersIsThatOfPyTorch) {
  EXPECT_EQ(floats_of(run("std", {floats({2}, {1, 3})}, {{"correction", 0}})), (std::vector<float>{1}));
  EXPECT_TRUE(std::isnan(floats_of(run("std", {floats({1}, {2})}))[0]));
  EXPECT_TRUE(std::isnan(floats_of(run("std", {floats({2}, {kNan, 1})}))[0]));
  EXPECT_EQ(floats_of(gradient("std", floats({2}, {2, 2}), {})), (std::vector<float>{0, 0}));
}

TEST(AveragePoolTest, CountsThePaddingOnlyWhereAsked) {
  const Tensor x = floats({1, 1, 1, 2}, {2, 4});
  const auto pooled = [&x](bool counts) {
    return floats_of(
        run("avg_pool2d", {x}, {{"kernel", Dims{1, 2}}, {"padding", Dims{0, 1}}, {"count_include_pad", counts}}));
  };
  EXPECT_EQ(pooled(true), (std::vector<float>{1, 2}));
  EXPECT_EQ(pooled(false), (std::vector<float>{2, 4}));
  EXPECT_TRUE(std::isnan(floats_of(run("avg_pool2d", {floats({1, 1, 1, 1}, {kNan})}, {{"kernel", Dims{1, 1}}}))[0]));
}

TEST(AveragePoolTest, RefusesWindowsThatDoNotFit) {
  const Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const Dims& kernel : {Dims{0, 1}, Dims{-1, 1}, Dims{3, 1}, Dims{most, 1}, Dims{1}, Dims{}}) {
    EXPECT_EQ(failure_of([&] {
                run("avg_pool2d", {x}, {{"kernel", kernel}});
              }).find("INVALID_ARGUMENT: avg_pool2d: "),
              0u);
  }
  EXPECT_EQ(failure_of([&x] {
              run("avg_pool2d", {x}, {{"kernel", Dims{2, 2}}, {"padding", Dims{2, 0}}});
            }),
            "INVALID_ARGUMENT: avg_pool2d: padding [2, 0] is more than half of the kernel [2, 2]");
  EXPECT_EQ(failure_of([] {
              run("avg_pool2d", {floats({2, 2}, {1, 2, 3, 4})}, {{"kernel", Dims{1, 1}}});
            }),
            "INVALID_ARGUMENT: avg_pool2d: x must be [n, c, h, w], not float32[2, 2]");
}

}  // namespace
}  // namespace distag::testing
