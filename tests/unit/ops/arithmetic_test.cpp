#include <gtest/gtest.h>

#include <cmath>

#include "apply_op.h"

namespace distag::testing {
namespace {

const float kNan = std::nanf("");

TEST(ArithmeticTest, BroadcastsShapes) {
  Tensor a = floats({2, 1}, {10, 20});
  Tensor b = floats({3}, {1, 2, 3});
  Tensor y = run("add", {a, b});
  EXPECT_EQ(y.shape(), (Dims{2, 3}));
  EXPECT_EQ(floats_of(y), (std::vector<float>{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(run("add", {floats({0, 3}, {}), b}).shape(), (Dims{0, 3}));
  EXPECT_EQ(run("add", {floats({1}, {1}), floats({0}, {})}).shape(), (Dims{0}));
  EXPECT_EQ(run("mul", {floats({}, {2}), floats({}, {3})}).shape(), Dims());
}

TEST(ArithmeticTest, NamesShapesThatDoNotFit) {
  EXPECT_EQ(failure_of([] {
              run("add", {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({4}, {1, 2, 3, 4})});
            }),
            "INVALID_ARGUMENT: add: shapes [2, 3] and [4] do not broadcast");
}

TEST(ArithmeticTest, TakesStridedAndAliasedInputs) {
  Tensor x = floats({2, 2}, {1, 2, 3, 4});
  Tensor transposed = run("transpose", {x}, {{"dim0", 0}, {"dim1", 1}});
  EXPECT_EQ(floats_of(run("add", {x, transposed})), (std::vector<float>{2, 5, 5, 8}));
  EXPECT_EQ(floats_of(run("add", {x, x})), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(floats_of(run("sub", {transposed, transposed})), (std::vector<float>{0, 0, 0, 0}));
}

TEST(ArithmeticTest, LeavesItsInputsAlone) {
  Tensors inputs{floats({2}, {1, 2})};
  for (const char* op : {"neg", "exp", "relu"}) run(op, inputs);
  run("mul_scalar", inputs, {{"value", 3.0}});
  EXPECT_EQ(floats_of(inputs[0]), (std::vector<float>{1, 2}));
}

TEST(ArithmeticTest, PromotesAsPyTorchDoes) {
  Tensor i = integers({2}, {1, 2});
  Tensor f = floats({2}, {1, 2});
  Tensor d = doubles({2}, {1, 2});
  EXPECT_EQ(run("add", {i, f}).dtype(), Dtype::kFloat32);
  EXPECT_EQ(run("add", {f, d}).dtype(), Dtype::kFloat64);
  EXPECT_EQ(run("add", {flags({2}, {1, 0}), i}).dtype(), Dtype::kInt64);
  EXPECT_EQ(run("div", {i, i}).dtype(), Dtype::kFloat32);
  // A 0-d tensor counts only by its category.
  EXPECT_EQ(run("add", {f, doubles({}, {1})}).dtype(), Dtype::kFloat32);
  EXPECT_EQ(run("add", {integers({}, {1}), f}).dtype(), Dtype::kFloat32);
  EXPECT_EQ(run("add", {i, doubles({}, {1})}).dtype(), Dtype::kFloat64);
  EXPECT_EQ(run("add", {floats({}, {1}), doubles({}, {1})}).dtype(), Dtype::kFloat64);
}

TEST(ArithmeticTest, ComputesIntegersAndBools) {
  Tensor big = integers({1}, {INT64_MAX});
  EXPECT_EQ(integers_of(run("add", {big, integers({1}, {1})}))[0], INT64_MIN);
  EXPECT_EQ(integers_of(run("neg", {integers({1}, {INT64_MIN})}))[0], INT64_MIN);
  EXPECT_EQ(flags_of(run("add", {flags({3}, {0, 1, 1}), flags({3}, {0, 0, 1})})), (std::vector<uint8_t>{0, 1, 1}));
  EXPECT_EQ(flags_of(run("mul", {flags({2}, {2, 1}), flags({2}, {1, 0})})), (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(failure_of([] {
              run("sub", {flags({1}, {1}), flags({1}, {1})});
            }).find("UNSUPPORTED: sub: dtype bool"),
            0u);
  EXPECT_EQ(failure_of([] { run("neg", {flags({1}, {1})}); }).find("UNSUPPORTED: neg: dtype bool"), 0u);
}

TEST(ArithmeticTest, DividesLikeIeee) {
  auto y = floats_of(run("div", {floats({3}, {1, -1, 0}), floats({}, {0})}));
  EXPECT_EQ(y[0], INFINITY);
  EXPECT_EQ(y[1], -INFINITY);
  EXPECT_TRUE(std::isnan(y[2]));
}

TEST(ArithmeticTest, TakesNumbers) {
  EXPECT_EQ(floats_of(run("add_scalar", {floats({2}, {1, 2})}, {{"value", 0.5}})), (std::vector<float>{1.5, 2.5}));
  EXPECT_EQ(integers_of(run("mul_scalar", {integers({2}, {1, 2})}, {{"value", -3}})), (std::vector<int64_t>{-3, -6}));
  EXPECT_EQ(failure_of([] {
              run("add_scalar", {integers({1}, {1})}, {{"value", 0.5}});
            }),
            "INVALID_ARGUMENT: add_scalar: an int64 tensor takes whole numbers within int64 only, not 0.5; cast it to "
            "a float dtype first");
  EXPECT_EQ(failure_of([] { run("mul_scalar", {flags({1}, {1})}, {{"value", 1}}); }).find("UNSUPPORTED"), 0u);
}

TEST(ArithmeticTest, ComparesAndTakesTheLarger) {
  EXPECT_EQ(flags_of(run("eq", {floats({3}, {1, 2, kNan}), floats({3}, {1, 3, kNan})})),
            (std::vector<uint8_t>{1, 0, 0}));
  EXPECT_EQ(run("eq", {integers({2}, {1, 2}), integers({}, {2})}).dtype(), Dtype::kBool);
  auto larger = floats_of(run("maximum", {floats({4}, {1, 5, kNan, 2}), floats({4}, {3, 4, 2, kNan})}));
  EXPECT_EQ(larger[0], 3);
  EXPECT_EQ(larger[1], 5);
  EXPECT_TRUE(std::isnan(larger[2]) && std::isnan(larger[3]));
}

// b^2 is 0, and 1 / b infinite.
TEST(ArithmeticTest, DividesTwiceForTheGradientOfADenominator) {
  const ops::Op* op = ops::find_op("div");
  ops::Saved saved;
  saved.needed = 3;
  op->forward(Tensors{floats({2}, {0, 6}), floats({2}, {-1e-40f, 2})}, {}, &saved);
  const Tensors gradients = op->backward(saved, {floats({2}, {1, 1})});
  EXPECT_EQ(floats_of(gradients[1]), (std::vector<float>{0, -1.5}));
  EXPECT_EQ(floats_of(gradients[0])[1], 0.5f);
}

TEST(ArithmeticTest, SharesTheGradientOfMaximumBetweenEqualOnes) {
  const ops::Op* op = ops::find_op("maximum");
  ops::Saved saved;
  saved.needed = 3;
  Tensors inputs{floats({3}, {1, 2, 3}), floats({3}, {1, 3, 2})};
  op->forward(inputs, {}, &saved);
  Tensors gradients = op->backward(saved, {floats({3}, {1, 1, 1})});
  EXPECT_EQ(floats_of(gradients[0]), (std::vector<float>{0.5, 0, 1}));
  EXPECT_EQ(floats_of(gradients[1]), (std::vector<float>{0.5, 1, 0}));
}

TEST(ArithmeticTest, CastsGradientsBackToTheDtypeOfTheirInput) {
  const ops::Op* op = ops::find_op("mul");
  ops::Saved saved;
  saved.needed = 3;
  op->forward(Tensors{floats({2}, {1, 2}), doubles({1, 2}, {3, 4})}, {}, &saved);
  Tensors gradients = op->backward(saved, {doubles({1, 2}, {1, 1})});
  EXPECT_EQ(floats_of(gradients[0]), (std::vector<float>{3, 4}));
  EXPECT_EQ(gradients[0].shape(), (Dims{2}));
  EXPECT_EQ(gradients[1].dtype(), Dtype::kFloat64);
}

TEST(AccumulateTest, ReusesMemoryThatNobodyElseHolds) {
  Tensor sum = floats({2}, {1, 2});
  const std::byte* place = sum.data();
  sum = ops::accumulate(std::move(sum), floats({2}, {10, 20}));
  EXPECT_EQ(sum.data(), place);
  EXPECT_EQ(floats_of(sum), (std::vector<float>{11, 22}));
  Tensor kept = sum.snapshot();
  sum = ops::accumulate(std::move(sum), floats({2}, {1, 1}));
  EXPECT_EQ(floats_of(kept), (std::vector<float>{11, 22}));
  EXPECT_EQ(floats_of(sum), (std::vector<float>{12, 23}));
  EXPECT_EQ(ops::accumulate(Tensor(), sum).id(), sum.id());
  EXPECT_EQ(ops::accumulate(sum, Tensor()).id(), sum.id());
  EXPECT_EQ(floats_of(ops::accumulate(sum, sum)), (std::vector<float>{24, 46}));
}

TEST(AssignTest, CastsAndBroadcasts) {
  Tensor x = floats({2, 2}, {1, 2, 3, 4});
  uint64_t id = x.id();
  ops::assign(x, integers({2}, {7, 8}));
  EXPECT_EQ(floats_of(x), (std::vector<float>{7, 8, 7, 8}));
  EXPECT_EQ(x.id(), id);
  Tensor row = x.view({2}, {1}, 2);
  ops::assign(row, floats({}, {0}));
  EXPECT_EQ(floats_of(x), (std::vector<float>{7, 8, 0, 0}));
  Tensor transposed = x.view({2, 2}, {1, 2}, 0);
  ops::assign(x, transposed);
  EXPECT_EQ(floats_of(x), (std::vector<float>{7, 0, 8, 0}));
}

TEST(AssignTest, RefusesWhatDoesNotFit) {
  Tensor x = floats({2}, {1, 2});
  EXPECT_EQ(failure_of([&] {
              ops::assign(x, floats({2, 2}, {1, 2, 3, 4}));
            }),
            "INVALID_ARGUMENT: assign: shape [2, 2] does not broadcast to [2]");
  Tensor repeated = x.view({3, 2}, {0, 1}, 0);
  EXPECT_EQ(failure_of([&] { ops::assign(repeated, x); }).find("INVALID_ARGUMENT: assign: float32[3, 2] repeats"), 0u);
}

TEST(AddScaledTest, AddsInPlace) {
  Tensor x = floats({2, 2}, {1, 2, 3, 4});
  Tensor kept = x.snapshot();
  ops::add_scaled(x, floats({2}, {10, 20}), -0.5);
  EXPECT_EQ(floats_of(x), (std::vector<float>{-4, -8, -2, -6}));
  EXPECT_EQ(floats_of(kept), (std::vector<float>{1, 2, 3, 4}));
  ops::add_scaled(x, x, 1.0);
  EXPECT_EQ(floats_of(x), (std::vector<float>{-8, -16, -4, -12}));
  Tensor column = x.view({2}, {2}, 0);
  ops::add_scaled(column, doubles({2}, {8, 4}), 1.0);
  EXPECT_EQ(floats_of(x), (std::vector<float>{0, -16, 0, -12}));
  Tensor whole = integers({1}, {1});
  EXPECT_EQ(failure_of([&] { ops::add_scaled(whole, whole, 0.5); }).find("INVALID_ARGUMENT: add_scaled"), 0u);
}

}  // namespace
}  // namespace distag::testing
