#include <gtest/gtest.h>

#include <cmath>

#include "apply_op.h"

namespace distag::testing {
namespace {

const float kNan = std::nanf("");

Tensor counting(const Dims& shape) {
  Tensor x = Tensor::empty(Dtype::kFloat64, shape);
  for (int64_t i = 0; i < x.count(); ++i) x.mutable_data_as<double>()[i] = static_cast<double>(i % 97) - 13.0;
  return x;
}

// Reduces element by element, by the definition.
std::vector<double> reduced(const Tensor& x, const std::vector<bool>& dims, bool take_largest) {
  Dims kept = x.shape();
  for (size_t i = 0; i < x.rank(); ++i) kept[i] = dims[i] ? 1 : kept[i];
  std::vector<double> result(static_cast<size_t>(element_count(kept)), take_largest ? -1e300 : 0.0);
  auto values = values_of<double>(x);
  for (int64_t i = 0; i < x.count(); ++i) {
    int64_t rest = i;
    int64_t place = 0;
    int64_t stride = 1;
    for (size_t d = x.rank(); d-- > 0;) {
      place += dims[d] ? 0 : rest % x.shape()[d] * stride;
      stride *= kept[d];
      rest /= x.shape()[d];
    }
    double& target = result[static_cast<size_t>(place)];
    double value = values[static_cast<size_t>(i)];
    target = take_largest ? std::max(target, value) : target + value;
  }
  return result;
}

TEST(ReductionTest, ReducesEverySetOfDims) {
  Tensor x = counting({3, 2, 35, 4});
  for (int set = 1; set < 16; ++set) {
    std::vector<bool> flags;
    Dims dims;
    for (int d = 0; d < 4; ++d) {
      flags.push_back((set >> d & 1) != 0);
      if (flags.back()) dims.push_back(d);
    }
    EXPECT_EQ(values_of<double>(run("sum", {x}, {{"dims", dims}})), reduced(x, flags, false)) << set;
    EXPECT_EQ(values_of<double>(run("max", {x}, {{"dims", dims}})), reduced(x, flags, true)) << set;
    EXPECT_EQ(values_of<double>(run("sum", {with_gaps(x)}, {{"dims", dims}})), reduced(x, flags, false)) << set;
  }
}

TEST(ReductionTest, HasTheShapeAskedFor) {
  Tensor x = counting({2, 3, 4});
  EXPECT_EQ(run("sum", {x}).shape(), Dims());
  EXPECT_EQ(run("sum", {x}, {{"keepdim", true}}).shape(), (Dims{1, 1, 1}));
  EXPECT_EQ(run("mean", {x}, {{"dims", Dims{-2}}}).shape(), (Dims{2, 4}));
  EXPECT_EQ(run("max", {x}, {{"dims", Dims{0, 2}}, {"keepdim", true}}).shape(), (Dims{1, 3, 1}));
  EXPECT_EQ(failure_of([&] {
              run("sum", {x}, {{"dims", Dims{3}}});
            }),
            "INVALID_ARGUMENT: sum: dim 3 is out of range for float64[2, 3, 4]");
  EXPECT_EQ(failure_of([&] {
              run("sum", {x}, {{"dims", Dims{0, -3}}});
            }),
            "INVALID_ARGUMENT: sum: dim -3 is named twice for float64[2, 3, 4]");
}

TEST(ReductionTest, SumsNothingToZero) {
  EXPECT_EQ(run("sum", {floats({0, 3}, {})}).item(), 0.0);
  EXPECT_EQ(floats_of(run("sum", {floats({0, 3}, {})}, {{"dims", Dims{0}}})), (std::vector<float>{0, 0, 0}));
  EXPECT_TRUE(std::isnan(run("mean", {floats({0}, {})}).item()));
  EXPECT_EQ(failure_of([] { run("max", {floats({0, 3}, {})}); }).find("INVALID_ARGUMENT: max: float32[0, 3]"), 0u);
  EXPECT_EQ(run("max", {floats({0, 3}, {})}, {{"dims", Dims{1}}}).shape(), (Dims{0}));
}

TEST(ReductionTest, SumsLongRowsPrecisely) {
  Tensor x = Tensor::empty(Dtype::kFloat32, {1000003});
  std::fill_n(x.mutable_data_as<float>(), x.count(), 0.1f);
  double exact = 1000003 * static_cast<double>(0.1f);
  EXPECT_NEAR(run("sum", {x}).item(), exact, exact * 1e-6);
  Tensor columns = x.view({500001, 2}, {2, 1}, 0);
  EXPECT_NEAR(run("sum", {columns}, {{"dims", Dims{0}}}).view({}, {}, 0).item(), exact / 2, exact * 1e-5);
}

TEST(ReductionTest, KeepsOrChangesTheDtype) {
  EXPECT_EQ(run("sum", {flags({3}, {1, 0, 2})}).item(), 2.0);
  EXPECT_EQ(run("sum", {flags({3}, {1, 0, 1})}).dtype(), Dtype::kInt64);
  EXPECT_EQ(run("max", {integers({2}, {-5, -7})}).item(), -5.0);
  EXPECT_EQ(run("max", {flags({2}, {0, 1})}).dtype(), Dtype::kBool);
  EXPECT_EQ(failure_of([] { run("mean", {integers({2}, {1, 2})}); }).find("UNSUPPORTED: mean: dtype int64"), 0u);
}

TEST(ReductionTest, TakesNanForTheLargest) {
  EXPECT_TRUE(std::isnan(run("max", {floats({3}, {1, kNan, 2})}).item()));
  EXPECT_EQ(run("argmax", {floats({4}, {1, kNan, 2, kNan})}).item(), 1.0);
  EXPECT_EQ(run("max", {floats({2}, {-INFINITY, -INFINITY})}).item(), -INFINITY);
}

TEST(ReductionTest, FindsTheFirstLargest) {
  Tensor x = floats({2, 3}, {1, 3, 3, 5, 4, 5});
  EXPECT_EQ(integers_of(run("argmax", {x})), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(integers_of(run("argmax", {x}, {{"dim", 0}})), (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(run("argmax", {floats({}, {3})}).shape(), Dims());
  EXPECT_EQ(run("argmax", {floats({0, 2}, {})}).shape(), (Dims{0}));
  EXPECT_EQ(failure_of([] { run("argmax", {floats({2, 0}, {})}); }).find("INVALID_ARGUMENT: argmax"), 0u);
}

TEST(ReductionTest, SharesTheGradientOfMaxEvenly) {
  const ops::Op* op = ops::find_op("max");
  ops::Saved saved;
  saved.needed = 1;
  op->forward(Tensors{floats({2, 3}, {1, 3, 3, 5, 4, 2})}, ops::make_attributes({{"dims", Dims{1}}}), &saved);
  EXPECT_EQ(floats_of(op->backward(saved, {floats({2}, {1, 2})})[0]), (std::vector<float>{0, 0.5, 0.5, 2, 0, 0}));
}

}  // namespace
}  // namespace distag::testing
