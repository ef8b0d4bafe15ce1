#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "apply_op.h"

namespace distag::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Flags = std::vector<uint8_t>;

TEST(ComparisonsTest, ComparesAsIeee754) {
  const Tensor a = floats({8}, {1, 2, 3, kNan, 1, -0.0f, kInfinity, -kInfinity});
  const Tensor b = floats({8}, {2, 2, 2, 1, kNan, 0.0f, kInfinity, kInfinity});
  EXPECT_EQ(flags_of(run("gt", {a, b})), (Flags{0, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(flags_of(run("ge", {a, b})), (Flags{0, 1, 1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(flags_of(run("lt", {a, b})), (Flags{1, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(flags_of(run("le", {a, b})), (Flags{1, 1, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(flags_of(run("ne", {a, b})), (Flags{1, 0, 1, 1, 1, 0, 0, 1}));
  EXPECT_EQ(flags_of(run("eq", {a, b})), (Flags{0, 1, 0, 0, 0, 1, 1, 0}));
}

TEST(ComparisonsTest, TakesAllDtypesAndShapes) {
  const int64_t large = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(flags_of(run("gt", {integers({2}, {large, -large}), integers({}, {large - 1})})), (Flags{1, 0}));
  // Every byte that is not 0 is true.
  EXPECT_EQ(flags_of(run("gt", {flags({4}, {0, 7, 1, 0}), flags({4}, {0, 1, 0, 9})})), (Flags{0, 0, 1, 0}));
  EXPECT_EQ(flags_of(run("ne", {flags({2}, {7, 0}), flags({2}, {1, 1})})), (Flags{0, 1}));
  EXPECT_EQ(flags_of(run("lt", {integers({2}, {1, 2}), floats({}, {1.5})})), (Flags{1, 0}));
  EXPECT_EQ(run("le", {floats({0, 3}, {}), floats({3}, {1, 2, 3})}).shape(), (Dims{0, 3}));
  EXPECT_EQ(run("ge", {floats({}, {1}), floats({}, {1})}).shape(), Dims());
  EXPECT_EQ(run("ge", {floats({}, {1}), floats({}, {1})}).dtype(), Dtype::kBool);
  EXPECT_EQ(failure_of([] {
              run("gt", {floats({2}, {1, 2}), floats({3}, {1, 2, 3})});
            }),
            "INVALID_ARGUMENT: gt: shapes [2] and [3] do not broadcast");
}

TEST(ComparisonsTest, TakesWhatIsNotZeroAsTrue) {
  const Tensor x = floats({5}, {0.5, kNan, -0.0f, 0, 1e-45f});
  EXPECT_EQ(flags_of(run("logical_not", {x})), (Flags{0, 0, 1, 1, 0}));
  EXPECT_EQ(flags_of(run("logical_and", {x, integers({}, {4})})), (Flags{1, 1, 0, 0, 1}));
  EXPECT_EQ(flags_of(run("logical_or", {x, flags({5}, {0, 0, 0, 8, 0})})), (Flags{1, 1, 0, 1, 1}));
  EXPECT_EQ(flags_of(run("logical_and", {flags({2}, {1, 2}), flags({2}, {2, 4})})), (Flags{1, 1}));
  EXPECT_EQ(run("logical_not", {floats({0, 2}, {})}).shape(), (Dims{0, 2}));
}

TEST(ComparisonsTest, TakesTheSmaller) {
  const auto smaller = floats_of(run("minimum", {floats({4}, {1, 5, kNan, 2}), floats({4}, {3, 4, 2, kNan})}));
  EXPECT_EQ(smaller[0], 1);
  EXPECT_EQ(smaller[1], 4);
  EXPECT_TRUE(std::isnan(smaller[2]) && std::isnan(smaller[3]));
  EXPECT_EQ(flags_of(run("minimum", {flags({3}, {2, 0, 1}), flags({3}, {4, 1, 0})})), (Flags{1, 0, 0}));
  EXPECT_EQ(integers_of(run("minimum", {integers({2}, {-1, 4}), integers({}, {2})})), (std::vector<int64_t>{-1, 2}));
}

TEST(ComparisonsTest, SharesTheGradientOfMinimumBetweenEqualOnes) {
  const ops::Op* op = ops::find_op("minimum");
  ops::Saved saved;
  saved.needed = 3;
  const Tensors inputs = {floats({3}, {1, 2, 3}), floats({3}, {2, 2, 2})};
  op->forward(inputs, {}, &saved);
  const Tensors gradients = op->backward(saved, {floats({3}, {1, 1, 1})});
  EXPECT_EQ(floats_of(gradients[0]), (std::vector<float>{1, 0.5, 0}));
  EXPECT_EQ(floats_of(gradients[1]), (std::vector<float>{0, 0.5, 1}));
}

TEST(ComparisonsTest, FillsWhereTheMaskHolds) {
  const Tensor mask = flags({2}, {1, 0});
  EXPECT_EQ(floats_of(run("masked_fill", {floats({2}, {kNan, 2}), mask}, {{"value", -kInfinity}})),
            (std::vector<float>{-kInfinity, 2}));
  EXPECT_EQ(integers_of(run("masked_fill", {integers({}, {5}), mask}, {{"value", 7.0}})), (std::vector<int64_t>{7, 5}));
  EXPECT_EQ(flags_of(run("masked_fill", {flags({2}, {0, 0}), mask}, {{"value", 3.0}})), (Flags{1, 0}));
  EXPECT_EQ(run("masked_fill", {floats({0, 2}, {}), mask}, {{"value", 3.0}}).shape(), (Dims{0, 2}));
  EXPECT_EQ(failure_of([&mask] {
              run("masked_fill", {integers({2}, {1, 2}), mask}, {{"value", 0.5}});
            }),
            "INVALID_ARGUMENT: masked_fill: an int64 tensor takes whole numbers within int64 only, not 0.5; cast it to "
            "a float dtype first");
  EXPECT_EQ(failure_of([] {
              run("masked_fill", {floats({2}, {1, 2}), floats({2}, {1, 0})}, {{"value", 1.0}});
            }),
            "INVALID_ARGUMENT: masked_fill: the mask must be bool, not float32[2]; compare it (ne) or cast it");
}

}  // namespace
}  // namespace distag::testing
