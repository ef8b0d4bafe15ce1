#include <gtest/gtest.h>

#include "apply_op.h"

namespace distag::testing {
namespace {

Tensor counting(const Dims& shape) {
  Tensor x = Tensor::empty(Dtype::kFloat32, shape);
  for (int64_t i = 0; i < x.count(); ++i) x.mutable_data_as<float>()[i] = static_cast<float>(i % 7 - 3);
  return x;
}

Tensor swapped(const Tensor& x) { return run("transpose", {x}, {{"dim0", -1}, {"dim1", -2}}); }

TEST(MatmulTest, MultipliesMatrices) {
  Tensor y = run("matmul", {floats({2, 3}, {1, 2, 3, 4, 5, 6}), floats({3, 2}, {7, 8, 9, 10, 11, 12})});
  EXPECT_EQ(y.shape(), (Dims{2, 2}));
  EXPECT_EQ(floats_of(y), (std::vector<float>{58, 64, 139, 154}));
}

TEST(MatmulTest, TakesRowsAndColumns) {
  Tensor m = floats({2, 2}, {1, 2, 3, 4});
  Tensor v = floats({2}, {10, 1});
  EXPECT_EQ(floats_of(run("matmul", {v, v})), (std::vector<float>{101}));
  EXPECT_EQ(run("matmul", {v, v}).shape(), Dims());
  EXPECT_EQ(floats_of(run("matmul", {m, v})), (std::vector<float>{12, 34}));
  EXPECT_EQ(floats_of(run("matmul", {v, m})), (std::vector<float>{13, 24}));
  EXPECT_EQ(run("matmul", {v, counting({3, 2, 4})}).shape(), (Dims{3, 4}));
  EXPECT_EQ(run("matmul", {counting({3, 4, 2}), v}).shape(), (Dims{3, 4}));
}

// Whatever layout the sides have, the result is that of their row-major copies.
TEST(MatmulTest, ReadsEveryLayout) {
  for (int64_t n : {1, 3}) {
    for (int64_t k : {1, 4}) {
      for (int64_t m : {1, 5}) {
        Tensor a = counting({n, k});
        Tensor b = counting({k, m});
        auto expected = floats_of(run("matmul", {a, b}));
        std::vector<Tensor> lefts{a, with_gaps(a), swapped(swapped(a).clone()), swapped(with_gaps(swapped(a)))};
        std::vector<Tensor> rights{b, with_gaps(b), swapped(swapped(b).clone()), swapped(with_gaps(swapped(b)))};
        for (const Tensor& left : lefts) {
          for (const Tensor& right : rights) EXPECT_EQ(floats_of(run("matmul", {left, right})), expected);
        }
      }
    }
  }
}

TEST(MatmulTest, ReadsRepeatedRowsAndColumns) {
  Tensor row = floats({1, 3}, {1, 2, 3});
  Tensor repeated_rows = row.view({2, 3}, {0, 1}, 0);
  Tensor repeated_columns = row.view({3, 2}, {1, 0}, 0);
  EXPECT_EQ(floats_of(run("matmul", {repeated_rows, repeated_columns})), (std::vector<float>{14, 14, 14, 14}));
}

TEST(MatmulTest, IsRightForAliasedSides) {
  Tensor x = floats({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(floats_of(run("matmul", {x, x})), (std::vector<float>{7, 10, 15, 22}));
  EXPECT_EQ(floats_of(run("matmul", {swapped(x), x})), (std::vector<float>{10, 14, 14, 20}));
}

TEST(MatmulTest, BroadcastsBatches) {
  Tensor a = counting({2, 1, 2, 3});
  Tensor b = counting({4, 3, 2});
  Tensor y = run("matmul", {a, b});
  ASSERT_EQ(y.shape(), (Dims{2, 4, 2, 2}));
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      Tensor one = run("matmul", {a.view({2, 3}, {3, 1}, i * 6), b.view({3, 2}, {2, 1}, j * 6)});
      EXPECT_EQ(floats_of(y.view({2, 2}, {2, 1}, (i * 4 + j) * 4)), floats_of(one));
    }
  }
  EXPECT_EQ(failure_of([] {
              run("matmul", {counting({2, 2, 3}), counting({3, 3, 2})});
            }),
            "INVALID_ARGUMENT: matmul: shapes [2] and [3] do not broadcast");
}

TEST(MatmulTest, IsZeroWithoutInnerElements) {
  EXPECT_EQ(floats_of(run("matmul", {floats({2, 0}, {}), floats({0, 2}, {})})), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(run("matmul", {floats({0, 2}, {}), counting({2, 3})}).shape(), (Dims{0, 3}));
}

TEST(MatmulTest, MultipliesIntegersAndPromotes) {
  Tensor i = integers({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(integers_of(run("matmul", {i, swapped(i)})), (std::vector<int64_t>{5, 11, 11, 25}));
  EXPECT_EQ(run("matmul", {i, floats({2, 1}, {1, 1})}).dtype(), Dtype::kFloat32);
  EXPECT_EQ(failure_of([] {
              run("matmul", {flags({1, 1}, {1}), flags({1, 1}, {1})});
            }).find("UNSUPPORTED: matmul"),
            0u);
}

TEST(MatmulTest, NamesSizesThatDiffer) {
  EXPECT_EQ(failure_of([] {
              run("matmul", {counting({2, 3}), counting({4, 5})});
            }),
            "INVALID_ARGUMENT: matmul: inner sizes 3 and 4 differ ([2, 3] x [4, 5])");
  EXPECT_EQ(failure_of([] {
              run("matmul", {floats({}, {1}), counting({4, 5})});
            }).find("INVALID_ARGUMENT: matmul: both sides need at least one dim"),
            0u);
}

TEST(LinearTest, AddsTheBiasToEachRow) {
  Tensor x = floats({2, 2}, {1, 2, 3, 4});
  Tensor weight = floats({3, 2}, {1, 0, 0, 1, 1, 1});
  EXPECT_EQ(floats_of(run("linear", {x, weight, floats({3}, {10, 20, 30})})),
            (std::vector<float>{11, 22, 33, 13, 24, 37}));
  EXPECT_EQ(floats_of(run("linear", {x, weight})), (std::vector<float>{1, 2, 3, 3, 4, 7}));
  EXPECT_EQ(floats_of(run("linear", {x, weight, Tensor()})), (std::vector<float>{1, 2, 3, 3, 4, 7}));
  EXPECT_EQ(floats_of(run("linear", {floats({1, 0}, {}), floats({2, 0}, {}), floats({2}, {5, 6})})),
            (std::vector<float>{5, 6}));
  EXPECT_EQ(failure_of([&] {
              run("linear", {x, x, floats({3}, {1, 2, 3})});
            }).find("INVALID_ARGUMENT: linear: x float32[2, 2], weight float32[2, 2], bias float32[3] do not fit"),
            0u);
}

}  // namespace
}  // namespace distag::testing
