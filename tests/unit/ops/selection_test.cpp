// topk, sort, min_with_indices, max_with_indices, nonzero, one_hot, index_add, scatter_add, huber_loss: what reference
// numbers do not show.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "apply_op.h"

namespace distag::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

using Indices = std::vector<int64_t>;

Tensors run_all(const char* name, const Tensors& inputs, std::initializer_list<ops::Setting> settings) {
  const ops::Op& op = *ops::find_op(name);
  const ops::Attributes attributes = ops::make_attributes(settings);
  ops::check_arguments(op, inputs, attributes);
  return op.forward(inputs, attributes, nullptr);
}

TEST(SelectionTest, TopkTakesNanForTheLargestAndTheFirstOfEqualOnes) {
  const Tensor x = floats({7}, {1, kNan, 2, kNan, 2, -0.0f, 0.0f});
  Tensors found = run_all("topk", {x}, {{"k", 4}});
  EXPECT_EQ(integers_of(found[1]), (Indices{1, 3, 2, 4}));
  EXPECT_EQ(floats_of(found[0])[2], 2);
  EXPECT_TRUE(std::isnan(floats_of(found[0])[0]));
  found = run_all("topk", {x}, {{"k", 7}, {"largest", false}});
  EXPECT_EQ(integers_of(found[1]), (Indices{5, 6, 0, 2, 4, 1, 3}));
}

TEST(SelectionTest, TopkTakesAnyDimAndIntegers) {
  const Tensor x = integers({2, 3}, {1, kMost, 3, -kMost, 5, 3});
  Tensors found = run_all("topk", {x}, {{"k", 1}, {"dim", 0}});
  EXPECT_EQ(integers_of(found[0]), (Indices{1, kMost, 3}));
  EXPECT_EQ(integers_of(found[1]), (Indices{0, 0, 0}));
  EXPECT_EQ(found[1].shape(), (Dims{1, 3}));
  found = run_all("topk", {floats({}, {2})}, {{"k", 1}});
  EXPECT_EQ(found[0].shape(), Dims());
  EXPECT_EQ(integers_of(found[1]), (Indices{0}));
  EXPECT_EQ(run_all("topk", {floats({3, 0}, {})}, {{"k", 0}})[1].shape(), (Dims{3, 0}));
  EXPECT_EQ(run_all("topk", {floats({0, 3}, {})}, {{"k", 2}})[0].shape(), (Dims{0, 2}));
}

TEST(SelectionTest, TopkRefusesAnyOtherK) {
  for (const int64_t k : {int64_t{-1}, int64_t{4}, kMost}) {
    EXPECT_EQ(failure_of([k] {
                run_all("topk", {floats({2, 3}, {1, 2, 3, 4, 5, 6})}, {{"k", k}});
              }),
              "INVALID_ARGUMENT: topk: k " + std::to_string(k) +
                  " is not from 0 to 3, the elements of float32[2, 3] along dim 1");
  }
  EXPECT_EQ(failure_of([] {
              run_all("topk", {flags({2}, {1, 0})}, {{"k", 1}});
            }),
            "UNSUPPORTED: topk: dtype bool is not supported: use float32, float64 or int64");
}

TEST(SelectionTest, ExtremesAreTheFirstOfEqualOnes) {
  const Tensor x = floats({2, 4}, {3, -0.0f, 0.0f, 3, 5, 5, 1, 1});
  Tensors found = run_all("min_with_indices", {x}, {});
  EXPECT_EQ(integers_of(found[1]), (Indices{1, 2}));
  EXPECT_TRUE(std::signbit(floats_of(found[0])[0]));
  EXPECT_EQ(found[0].shape(), (Dims{2}));
  found = run_all("max_with_indices", {x}, {{"keepdim", true}});
  EXPECT_EQ(integers_of(found[1]), (Indices{0, 0}));
  EXPECT_EQ(found[0].shape(), (Dims{2, 1}));
  EXPECT_EQ(found[1].shape(), (Dims{2, 1}));
  found = run_all("max_with_indices", {x}, {{"dim", 0}});
  EXPECT_EQ(integers_of(found[1]), (Indices{1, 1, 1, 0}));
}

TEST(SelectionTest, AFirstNanIsBothTheSmallestAndTheLargest) {
  const Tensor x = floats({2, 4}, {-kInfinity, kNan, kInfinity, kNan, kInfinity, kInfinity, -kInfinity, -kInfinity});
  Tensors found = run_all("min_with_indices", {x}, {});
  EXPECT_EQ(integers_of(found[1]), (Indices{1, 2}));
  EXPECT_TRUE(std::isnan(floats_of(found[0])[0]));
  EXPECT_EQ(floats_of(found[0])[1], -kInfinity);
  found = run_all("max_with_indices", {x}, {});
  EXPECT_EQ(integers_of(found[1]), (Indices{1, 0}));
  EXPECT_TRUE(std::isnan(floats_of(found[0])[0]));
  EXPECT_EQ(floats_of(found[0])[1], kInfinity);
}

// The first of equal numbers, or the first NaN.
int64_t first_extreme(const std::vector<float>& row, float sign) {
  size_t best = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (std::isnan(row[i])) return static_cast<int64_t>(i);
    if (row[i] * sign > row[best] * sign) best = i;
  }
  return static_cast<int64_t>(best);
}

TEST(SelectionTest, ExtremesOfRowsOfAnyLength) {
  for (const size_t count : {1u, 2u, 63u, 64u, 65u, 257u, 1500u}) {
    for (const size_t nan : {size_t{0}, count / 2, count - 1, count}) {
      for (const float unit : {1.0f, 0.0f, -0.0f, kInfinity, -kInfinity}) {
        std::vector<float> row(count);
        for (size_t i = 0; i < count; ++i) row[i] = static_cast<float>(1 + i * 7919 % 11) * unit;
        if (nan < count) row[nan] = kNan;
        const Tensor x = floats({static_cast<int64_t>(count)}, row);
        EXPECT_EQ(run("argmax", {x}).item(), static_cast<double>(first_extreme(row, 1)));
        EXPECT_EQ(integers_of(run_all("max_with_indices", {x}, {})[1])[0], first_extreme(row, 1));
        EXPECT_EQ(integers_of(run_all("min_with_indices", {x}, {})[1])[0], first_extreme(row, -1));
      }
    }
  }
}

TEST(SelectionTest, ExtremesAreThereForAllDtypesAndForNoDims) {
  Tensors found = run_all("min_with_indices", {integers({3}, {kMost, -kMost, -kMost})}, {});
  EXPECT_EQ(integers_of(found[0]), (Indices{-kMost}));
  EXPECT_EQ(integers_of(found[1]), (Indices{1}));
  found = run_all("max_with_indices", {flags({3}, {0, 1, 1})}, {});
  EXPECT_EQ(found[0].dtype(), Dtype::kBool);
  EXPECT_EQ(integers_of(found[1]), (Indices{1}));
  found = run_all("min_with_indices", {floats({}, {2})}, {{"keepdim", true}});
  EXPECT_EQ(found[0].shape(), Dims());
  EXPECT_EQ(integers_of(found[1]), (Indices{0}));
}

TEST(SelectionTest, ThereIsNoExtremeOfNothing) {
  for (const std::string op : {"min_with_indices", "max_with_indices"}) {
    const auto failure = [&op](int64_t dim) {
      return failure_of([&] { run_all(op.c_str(), {floats({0, 3}, {})}, {{"dim", dim}}); });
    };
    EXPECT_EQ(failure(0).find("INVALID_ARGUMENT: " + op + ": float32[0, 3]"), 0u) << failure(0);
    for (const int64_t dim : {int64_t{2}, int64_t{-3}, kMost, -kMost}) {
      EXPECT_EQ(failure(dim).find("INVALID_ARGUMENT: " + op + ": dim " + std::to_string(dim)), 0u) << failure(dim);
    }
    EXPECT_EQ(run_all(op.c_str(), {floats({0, 3}, {})}, {})[1].shape(), (Dims{0}));
  }
}

TEST(SelectionTest, SortKeepsEqualOnesInOrderAndTakesNanForTheLargest) {
  const Tensor x = floats({6}, {2, kNan, -0.0f, 0.0f, 1, kNan});
  EXPECT_EQ(integers_of(run_all("sort", {x}, {})[1]), (Indices{2, 3, 4, 0, 1, 5}));
  EXPECT_EQ(integers_of(run_all("sort", {x}, {{"descending", true}})[1]), (Indices{1, 5, 0, 4, 2, 3}));
  Tensors found = run_all("sort", {integers({2, 2}, {5, 1, kMost, -kMost})}, {{"dim", 0}, {"descending", true}});
  EXPECT_EQ(integers_of(found[0]), (Indices{kMost, 1, 5, -kMost}));
  EXPECT_EQ(integers_of(found[1]), (Indices{1, 0, 0, 1}));
  EXPECT_EQ(run_all("sort", {floats({0, 2}, {})}, {{"dim", 0}})[1].shape(), (Dims{0, 2}));
  EXPECT_EQ(integers_of(run_all("sort", {floats({}, {3})}, {})[1]), (Indices{0}));
  EXPECT_EQ(failure_of([] {
              run_all("sort", {floats({2}, {1, 2})}, {{"dim", 1}});
            }),
            "INVALID_ARGUMENT: sort: dim 1 is out of range for float32[2]");
}

TEST(SelectionTest, NonzeroGivesIndicesInRowMajorOrder) {
  const Tensor found = run("nonzero", {floats({2, 3}, {0, kNan, -0.0f, 1, 0, -kInfinity})});
  EXPECT_EQ(found.shape(), (Dims{3, 2}));
  EXPECT_EQ(integers_of(found), (Indices{0, 1, 1, 0, 1, 2}));
  EXPECT_EQ(integers_of(run("nonzero", {flags({3}, {7, 0, 1})})), (Indices{0, 2}));
  EXPECT_EQ(run("nonzero", {integers({2, 0}, {})}).shape(), (Dims{0, 2}));
  EXPECT_EQ(run("nonzero", {floats({}, {5})}).shape(), (Dims{1, 0}));
  EXPECT_EQ(run("nonzero", {floats({}, {0})}).shape(), (Dims{0, 0}));
  EXPECT_EQ(integers_of(run("nonzero", {with_gaps(floats({2, 2}, {0, 1, 1, 0}))})), (Indices{0, 1, 1, 0}));
}

TEST(SelectionTest, OneHotRefusesWhatNoClassIs) {
  EXPECT_EQ(integers_of(run("one_hot", {integers({2}, {1, 0})}, {{"num_classes", 2}})), (Indices{0, 1, 1, 0}));
  EXPECT_EQ(run("one_hot", {integers({2, 0}, {})}, {{"num_classes", 3}}).shape(), (Dims{2, 0, 3}));
  for (const int64_t classes : {int64_t{-1}, int64_t{0}, (int64_t{1} << 24) + 1, kMost}) {
    EXPECT_EQ(failure_of([classes] {
                run("one_hot", {integers({}, {0})}, {{"num_classes", classes}});
              }),
              "INVALID_ARGUMENT: one_hot: num_classes " + std::to_string(classes) + " is not from 1 to 16777216");
  }
  for (const int64_t index : {int64_t{-1}, int64_t{3}, kMost}) {
    EXPECT_EQ(failure_of([index] {
                run("one_hot", {integers({}, {index})}, {{"num_classes", 3}});
              }),
              "INVALID_ARGUMENT: one_hot: index " + std::to_string(index) + " out of range [0, 3)");
  }
  EXPECT_EQ(failure_of([] {
              run("one_hot", {floats({1}, {0})}, {{"num_classes", 3}});
            }),
            "INVALID_ARGUMENT: one_hot: the index must be int64, not float32[1]");
}

TEST(SelectionTest, SumsAtIndicesLeaveTheirInputsAlone) {
  const Tensor x = floats({3}, {1, 2, 3});
  EXPECT_EQ(floats_of(run("index_add", {x, integers({2}, {1, 1}), floats({2}, {10, 20})})),
            (std::vector<float>{1, 32, 3}));
  EXPECT_EQ(floats_of(run("scatter_add", {x, integers({2}, {1, 1}), floats({2}, {10, 20})}, {{"dim", 0}})),
            (std::vector<float>{1, 32, 3}));
  EXPECT_EQ(floats_of(x), (std::vector<float>{1, 2, 3}));
  // Integers wrap around.
  for (const char* op : {"index_add", "scatter_add"}) {
    EXPECT_EQ(integers_of(run(op, {integers({1}, {kMost}), integers({1}, {0}), integers({1}, {1})}, {{"dim", 0}})),
              (Indices{std::numeric_limits<int64_t>::min()}));
  }
}

// Small numbers onto a large one: in float32 each of them would be lost.
TEST(SelectionTest, SumsAtIndicesAreExact) {
  for (const int64_t count : {2, 100, 1000}) {
    for (const Dims& shape : {Dims{1}, Dims{1, 2}, Dims{1, 9}}) {
      Dims wider = shape;
      wider[0] = count;
      const auto filled = [](const Dims& dims, double value) {
        return run("full", {}, {{"shape", dims}, {"value", value}});
      };
      const Tensor index = run("zeros", {}, {{"shape", wider}, {"dtype", Dtype::kInt64}});
      const std::vector<float> sums(shape.back(), 0x1p24f + static_cast<float>(count));
      const Tensor first = integers({count}, Indices(count, 0));
      EXPECT_EQ(floats_of(run("index_add", {filled(shape, 0x1p24), first, filled(wider, 1)})), sums);
      EXPECT_EQ(floats_of(run("scatter_add", {filled(shape, 0x1p24), index, filled(wider, 1)}, {{"dim", 0}})), sums);
    }
  }
}

TEST(SelectionTest, SumsAtIndicesRefuseWhatDoesNotFit) {
  const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto fails = [&x](const char* op, const Tensor& index, const Tensor& source) {
    return failure_of([&] { run(op, {x, index, source}, {{"dim", 1}}); });
  };
  EXPECT_EQ(fails("index_add", integers({2}, {0, 1}), floats({2, 3}, {1, 2, 3, 4, 5, 6})),
            "INVALID_ARGUMENT: index_add: index int64[2] and source float32[2, 3] do not fit float32[2, 3]");
  EXPECT_EQ(fails("index_add", integers({1}, {0}), doubles({2, 1}, {1, 2})),
            "INVALID_ARGUMENT: index_add: index int64[1] and source float64[2, 1] do not fit float32[2, 3]");
  EXPECT_EQ(fails("index_add", integers({1}, {3}), floats({2, 1}, {1, 2})),
            "INVALID_ARGUMENT: index_add: index 3 out of range [0, 3)");
  EXPECT_EQ(fails("scatter_add", integers({3, 1}, {0, 0, 0}), floats({3, 1}, {1, 2, 3})),
            "INVALID_ARGUMENT: scatter_add: index int64[3, 1] and source float32[3, 1] do not fit float32[2, 3]");
  EXPECT_EQ(fails("scatter_add", integers({1, 1}, {-1}), floats({1, 1}, {1})),
            "INVALID_ARGUMENT: scatter_add: index -1 out of range [0, 3)");
  EXPECT_EQ(failure_of([] {
              run("index_add", {flags({1}, {1}), integers({1}, {0}), flags({1}, {1})});
            }),
            "UNSUPPORTED: index_add: dtype bool is not supported: use float32, float64 or int64");
}

TEST(SelectionTest, HuberLossOfCorners) {
  const Tensor zero = floats({}, {0});
  EXPECT_EQ(floats_of(run("huber_loss", {floats({4}, {2, -2, 1, kInfinity}), zero}, {{"reduction", "none"}})),
            (std::vector<float>{1.5f, 1.5f, 0.5f, kInfinity}));
  EXPECT_TRUE(std::isnan(floats_of(run("huber_loss", {floats({}, {kNan}), zero}))[0]));
  for (const double delta : {0.0, -1.0, static_cast<double>(kNan)}) {
    EXPECT_NE(failure_of([&] {
                run("huber_loss", {zero, zero}, {{"delta", delta}});
              }).find("is not above 0"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace distag::testing
