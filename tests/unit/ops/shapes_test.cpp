#include <gtest/gtest.h>

#include <cmath>

#include "apply_op.h"
#include "ops/broadcast.h"
#include "ops/views.h"

namespace distag::testing {
namespace {

Tensor counting(const Dims& shape) {
  Tensor x = Tensor::empty(Dtype::kFloat32, shape);
  for (int64_t i = 0; i < x.count(); ++i) x.mutable_data_as<float>()[i] = static_cast<float>(i);
  return x;
}

TEST(TransposeTest, IsAView) {
  Tensor x = counting({2, 3});
  Tensor y = run("transpose", {x}, {{"dim0", 0}, {"dim1", -1}});
  EXPECT_TRUE(y.shares_storage_with(x));
  EXPECT_EQ(floats_of(y), (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(failure_of([&] {
              run("transpose", {x}, {{"dim0", 0}, {"dim1", 2}});
            }),
            "INVALID_ARGUMENT: transpose: dim 2 is out of range for float32[2, 3]");
}

TEST(ReshapeTest, IsAViewWhereStridesAllowIt) {
  Tensor x = counting({4, 6});
  EXPECT_TRUE(run("reshape", {x}, {{"shape", Dims{3, -1}}}).shares_storage_with(x));
  Tensor columns = x.view({4, 3}, {6, 2}, 0);
  Tensor split = run("reshape", {columns}, {{"shape", Dims{2, 2, 3, 1}}});
  EXPECT_TRUE(split.shares_storage_with(x));
  EXPECT_EQ(floats_of(split), floats_of(columns));
  Tensor joined = run("reshape", {columns}, {{"shape", Dims{12}}});
  EXPECT_TRUE(joined.shares_storage_with(x));  // one run of stride 2
  Tensor transposed = run("transpose", {x}, {{"dim0", 0}, {"dim1", 1}});
  Tensor copied = run("reshape", {transposed}, {{"shape", Dims{24}}});
  EXPECT_FALSE(copied.shares_storage_with(x));
  EXPECT_EQ(floats_of(copied), floats_of(transposed));
}

TEST(ReshapeTest, FollowsAnyShape) {
  for (const Dims& shape : {Dims{2, 3, 4}, Dims{1, 24}, Dims{4, 1, 6}, Dims{24}, Dims{3, 8}}) {
    Tensor x = with_gaps(counting({2, 3, 4}));
    EXPECT_EQ(floats_of(run("reshape", {x}, {{"shape", shape}})), floats_of(x)) << to_string(shape);
  }
  EXPECT_EQ(run("reshape", {floats({1, 1}, {5})}, {{"shape", Dims{}}}).shape(), Dims());
  EXPECT_EQ(run("reshape", {floats({0, 3}, {})}, {{"shape", Dims{3, 0, 7}}}).shape(), (Dims{3, 0, 7}));
}

TEST(ReshapeTest, RefusesOtherCounts) {
  Tensor x = counting({2, 3});
  auto failure = [&](const Dims& shape) { return failure_of([&] { run("reshape", {x}, {{"shape", shape}}); }); };
  EXPECT_EQ(failure({4, 2}), "INVALID_ARGUMENT: reshape: float32[2, 3] has 6 elements and does not fit shape [4, 2]");
  EXPECT_EQ(failure({4, -1}), "INVALID_ARGUMENT: reshape: float32[2, 3] has 6 elements and does not fit shape [4, -1]");
  EXPECT_EQ(failure({-1, -1}), "INVALID_ARGUMENT: reshape: [-1, -1] has more than one -1");
  EXPECT_EQ(failure({-2, 3}).find("INVALID_ARGUMENT"), 0u);
  EXPECT_EQ(failure({0, -1}).find("INVALID_ARGUMENT"), 0u);
}

// No peer takes such a tensor, though it has no elements.
TEST(ReshapeTest, RefusesShapesOfMoreBytesThanMemoryCanHold) {
  const Tensor x = floats({0, 3}, {});
  constexpr int64_t kMost = INT64_MAX / sizeof(float);
  EXPECT_EQ(run("reshape", {x}, {{"shape", Dims{0, kMost}}}).shape(), (Dims{0, kMost}));
  for (const Dims& shape : {Dims{0, kMost + 1}, Dims{-1, INT64_MAX}, Dims{kMost + 1, 0}}) {
    EXPECT_NE(failure_of([&] {
                run("reshape", {x}, {{"shape", shape}});
              }).find("more elements than memory can hold"),
              std::string::npos)
        << to_string(shape);
  }
}

TEST(SliceTest, CutsAsPythonDoes) {
  Tensor x = counting({7});
  auto slice = [&](int64_t start, int64_t stop, int64_t step) {
    return floats_of(run("slice", {x}, {{"start", start}, {"stop", stop}, {"step", step}}));
  };
  EXPECT_EQ(slice(1, 6, 2), (std::vector<float>{1, 3, 5}));
  EXPECT_EQ(slice(-3, INT64_MAX, 1), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(slice(0, -5, 1), (std::vector<float>{0, 1}));
  EXPECT_EQ(slice(5, 2, 1), (std::vector<float>{}));
  EXPECT_EQ(slice(-100, 100, 3), (std::vector<float>{0, 3, 6}));
  EXPECT_EQ(slice(2, 3, INT64_MAX), (std::vector<float>{2}));
  EXPECT_EQ(slice(INT64_MIN, INT64_MAX, 6), (std::vector<float>{0, 6}));
  EXPECT_EQ(slice(100, 200, 1), (std::vector<float>{}));
}

TEST(SliceTest, IsAViewOfOneDim) {
  Tensor x = counting({3, 4});
  Tensor y = run("slice", {x}, {{"dim", -1}, {"start", 1}, {"stop", 3}});
  EXPECT_TRUE(y.shares_storage_with(x));
  EXPECT_EQ(floats_of(y), (std::vector<float>{1, 2, 5, 6, 9, 10}));
  EXPECT_EQ(failure_of([&] { run("slice", {x}, {{"step", 0}}); }), "INVALID_ARGUMENT: slice: step 0 is not positive");
  EXPECT_EQ(failure_of([&] { run("slice", {x}, {{"step", -1}}); }), "INVALID_ARGUMENT: slice: step -1 is not positive");
  EXPECT_EQ(failure_of([&] { run("slice", {floats({}, {1})}); }).find("INVALID_ARGUMENT: slice"), 0u);
}

TEST(ConcatTest, JoinsAlongADim) {
  Tensor a = counting({2, 1});
  Tensor b = with_gaps(counting({2, 2}));
  Tensor y = run("concat", {a, b, floats({2, 0}, {})}, {{"dim", 1}});
  EXPECT_EQ(y.shape(), (Dims{2, 3}));
  EXPECT_EQ(floats_of(y), (std::vector<float>{0, 0, 1, 1, 2, 3}));
  EXPECT_EQ(run("concat", {a, integers({1, 1}, {4})}).dtype(), Dtype::kFloat32);
  EXPECT_EQ(floats_of(run("concat", {a, a})), (std::vector<float>{0, 1, 0, 1}));
  EXPECT_EQ(failure_of([&] {
              run("concat", {a, b});
            }),
            "INVALID_ARGUMENT: concat: float32[2, 1] and float32[2, 2] differ in more than dim 0");
  EXPECT_EQ(failure_of([] { run("concat", {floats({}, {1})}); }).find("INVALID_ARGUMENT: concat"), 0u);
}

TEST(CastTest, Converts) {
  Tensor x = floats({5}, {1.9f, -1.9f, 0, NAN, 1e30f});
  EXPECT_EQ(integers_of(run("cast", {x}, {{"dtype", Dtype::kInt64}})), (std::vector<int64_t>{1, -1, 0, 0, INT64_MAX}));
  EXPECT_EQ(flags_of(run("cast", {x}, {{"dtype", "bool"}})), (std::vector<uint8_t>{1, 1, 0, 1, 1}));
  EXPECT_EQ(values_of<double>(run("cast", {integers({1}, {3})}, {{"dtype", Dtype::kFloat64}})),
            (std::vector<double>{3}));
  EXPECT_EQ(floats_of(run("cast", {flags({2}, {7, 0})}, {{"dtype", Dtype::kFloat32}})), (std::vector<float>{1, 0}));
}

TEST(CastTest, KeepsTheValuesOfNow) {
  Tensor x = floats({1}, {1});
  Tensor same = run("cast", {x}, {{"dtype", Dtype::kFloat32}});
  Tensor copy = run("clone", {x});
  Tensor alias = run("detach", {x});
  x.mutable_data_as<float>()[0] = 2;
  EXPECT_EQ(same.item(), 1.0);
  EXPECT_EQ(copy.item(), 1.0);
  EXPECT_EQ(alias.item(), 2.0);
}

// Rows below and above the length from which they are reversed in one piece.
TEST(FlipTest, EqualsItsDefinitionInAnyLayout) {
  for (const int64_t last : {37, 67}) {
    std::vector<float> numbers(static_cast<size_t>(2 * 3 * last));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    const Tensor plain = floats({2, 3, last}, numbers);
    const Tensor turned = run("transpose", {floats({last, 3, 2}, numbers)}, {{"dim0", 0}, {"dim1", 2}});
    const std::vector<float> half(numbers.begin(), numbers.begin() + 3 * last);
    const Tensor repeated = ops::broadcast_to(floats({1, 3, last}, half), Dims{2, 3, last});
    for (const Tensor& x : {plain, with_gaps(plain), turned, repeated}) {
      for (int64_t set = 1; set < 8; ++set) {
        Dims dims;
        for (int64_t d = 0; d < 3; ++d) {
          if (((set >> d) & 1) != 0) dims.push_back(d);
        }
        const std::vector<float> flipped = floats_of(run("flip", {x}, {{"dims", dims}}));
        const std::vector<float> source = floats_of(x.contiguous());
        for (int64_t i = 0; i < x.count(); ++i) {
          int64_t place[] = {i / (3 * last), i / last % 3, i % last};
          for (const int64_t d : dims) place[d] = x.shape()[static_cast<size_t>(d)] - 1 - place[d];
          ASSERT_EQ(flipped[static_cast<size_t>(i)],
                    source[static_cast<size_t>((place[0] * 3 + place[1]) * last + place[2])]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace distag::testing
