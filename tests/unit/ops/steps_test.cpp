// floor, round, sign, erf, triu, any, all: what reference numbers do not show.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "apply_op.h"

namespace distag::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

using Flags = std::vector<uint8_t>;

// By their bits, as -0 and NaN count.
std::vector<std::string> texts_of(const Tensor& x) {
  std::vector<std::string> texts;
  for (const float each : floats_of(x)) texts.push_back(std::isnan(each) ? "nan" : std::to_string(each));
  return texts;
}

TEST(StepsTest, OfCornersAreThoseOfPyTorch) {
  const Tensor x = floats({10}, {kNan, -0.0f, kInfinity, -kInfinity, 0.5f, 1.5f, 2.5f, -0.5f, -2.5f, 0x1p24f + 2});
  const auto expected = [](const std::vector<float>& values) {
    return texts_of(floats({static_cast<int64_t>(values.size())}, values));
  };
  EXPECT_EQ(texts_of(run("floor", {x})), expected({kNan, -0.0f, kInfinity, -kInfinity, 0, 1, 2, -1, -3, 0x1p24f + 2}));
  EXPECT_EQ(texts_of(run("round", {x})),
            expected({kNan, -0.0f, kInfinity, -kInfinity, 0, 2, 2, -0.0f, -2, 0x1p24f + 2}));
  EXPECT_EQ(texts_of(run("sign", {x})), expected({0, 0, 1, -1, 1, 1, 1, -1, -1, 1}));
  EXPECT_EQ(texts_of(run("erf", {floats({5}, {kNan, -0.0f, kInfinity, -kInfinity, 9})})),
            expected({kNan, -0.0f, 1, -1, 1}));
}

TEST(StepsTest, IntegersStayAndBoolsBecomeInt64) {
  const Tensor x = integers({4}, {kLeast, -3, 0, 7});
  EXPECT_EQ(integers_of(run("floor", {x})), integers_of(x));
  EXPECT_EQ(integers_of(run("round", {x})), integers_of(x));
  EXPECT_EQ(integers_of(run("sign", {x})), (std::vector<int64_t>{-1, -1, 0, 1}));
  for (const char* op : {"floor", "round", "sign"}) {
    EXPECT_EQ(integers_of(run(op, {flags({3}, {1, 0, 7})})), (std::vector<int64_t>{1, 0, 1})) << op;
  }
  EXPECT_EQ(run("erf", {x}).dtype(), Dtype::kFloat32);
}

// Also where the gradient is infinite, and without reading it.
TEST(StepsTest, HaveNoSlope) {
  for (const char* name : {"floor", "round", "sign"}) {
    const ops::Op* op = ops::find_op(name);
    ops::Saved saved;
    saved.needed = 1;
    op->forward(std::vector<Tensor>{floats({2}, {kNan, 1.5f})}, {}, &saved);
    EXPECT_EQ(floats_of(op->backward(saved, {floats({2}, {kInfinity, kNan})})[0]), (std::vector<float>{0, 0})) << name;
  }
}

TEST(StepsTest, TriuKeepsTheOtherSideOfTril) {
  const Tensor x = integers({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(integers_of(run("triu", {x})), (std::vector<int64_t>{1, 2, 3, 0, 5, 6}));
  EXPECT_EQ(integers_of(run("triu", {x}, {{"diagonal", 1}})), (std::vector<int64_t>{0, 2, 3, 0, 0, 6}));
  EXPECT_EQ(integers_of(run("triu", {x}, {{"diagonal", -1}})), integers_of(x));
  EXPECT_EQ(integers_of(run("triu", {x}, {{"diagonal", INT64_MAX}})), (std::vector<int64_t>(6, 0)));
  EXPECT_EQ(integers_of(run("triu", {x}, {{"diagonal", INT64_MIN}})), integers_of(x));
  // A NaN goes as well.
  EXPECT_EQ(floats_of(run("triu", {floats({2, 2}, {kInfinity, 1, kNan, 2})})),
            (std::vector<float>{kInfinity, 1, 0, 2}));
  EXPECT_EQ(failure_of([] { run("triu", {floats({2}, {1, 2})}); }), "INVALID_ARGUMENT: triu: float32[2] is no matrix");
}

TEST(StepsTest, AnyAndAllTakeEveryDtype) {
  EXPECT_EQ(flags_of(run("any", {floats({2, 2}, {0, -0.0f, kNan, 0})}, {{"dims", Dims{1}}})), (Flags{0, 1}));
  EXPECT_EQ(flags_of(run("all", {integers({2, 2}, {1, kLeast, 1, 0})}, {{"dims", Dims{-1}}})), (Flags{1, 0}));
  // Every byte that is not 0 is true, and the result is 0 or 1.
  EXPECT_EQ(flags_of(run("any", {flags({2, 2}, {0, 7, 0, 0})}, {{"dims", Dims{1}}})), (Flags{1, 0}));
  EXPECT_EQ(flags_of(run("all", {flags({2}, {9, 128})})), (Flags{1}));
  EXPECT_EQ(run("all", {flags({2, 3}, Flags(6, 1))}, {{"keepdim", true}}).shape(), (Dims{1, 1}));
  EXPECT_EQ(flags_of(run("any", {floats({}, {kNan})})), (Flags{1}));
}

TEST(StepsTest, OfNothingAnyIsFalseAndAllIsTrue) {
  const Tensor none = floats({0, 2}, {});
  EXPECT_EQ(flags_of(run("any", {none}, {{"dims", Dims{0}}})), (Flags{0, 0}));
  EXPECT_EQ(flags_of(run("all", {none}, {{"dims", Dims{0}}})), (Flags{1, 1}));
  EXPECT_EQ(run("all", {none}, {{"dims", Dims{1}}}).shape(), (Dims{0}));
  EXPECT_EQ(failure_of([&none] {
              run("any", {none}, {{"dims", Dims{2}}});
            }),
            "INVALID_ARGUMENT: any: dim 2 is out of range for float32[0, 2]");
}

}  // namespace
}  // namespace distag::testing
