#include "spmd/trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "layout/rule.h"
#include "ops/attributes.h"
#include "support/expect.h"

namespace distag::spmd {
namespace {

using ops::make_attributes;
using testing::failure_of;

constexpr int64_t kHuge = int64_t{1} << 62;

struct Sample {
  const char* op;
  std::vector<Dims> shapes;  // of inputs; {-1}: left out
  ops::Attributes attributes;
};

std::string outcome(const Sample& sample, bool has_elements) {
  Tensors inputs;
  for (const Dims& dims : sample.shapes) {
    if (dims == Dims{-1}) {
      inputs.emplace_back();
    } else {
      inputs.push_back(has_elements ? Tensor::empty(Dtype::kFloat32, dims) : make_shape_only(Dtype::kFloat32, dims));
    }
  }
  return failure_of([&] { autograd::apply(*ops::find_op(sample.op), inputs, sample.attributes); });
}

Sample pool(const char* op, const Dims& x, const Dims& kernel, const Dims& stride, const Dims& padding) {
  return {op, {x}, make_attributes({{"kernel", kernel}, {"stride", stride}, {"padding", padding}})};
}

// Ops refuse these by shapes alone.
TEST(Trace, RefusesWhatOpsRefuse) {
  const Dims image{1, 1, 4, 4};
  const Dims left_out{-1};
  const std::vector<Sample> samples = {
      {"max", {{0}}, {}},
      {"max", {{2, 0}}, make_attributes({{"dims", Dims{1}}})},
      {"max", {{0, 0}}, make_attributes({{"dims", Dims{1}}})},
      {"amin", {{2, 0}}, make_attributes({{"dims", Dims{1}}})},
      {"argmax", {{2, 0}}, {}},
      {"max_with_indices", {{2, 0}}, {}},
      {"min_with_indices", {{0, 2}}, make_attributes({{"dim", 0}})},
      {"norm", {{2, 0}}, make_attributes({{"p", HUGE_VAL}})},
      {"group_norm", {{2, 6}}, make_attributes({{"num_groups", 0}})},
      {"group_norm", {{2, 6}}, make_attributes({{"num_groups", 4}})},
      {"batch_norm", {{2, 3}, left_out, left_out, {3}, {3}}, make_attributes({{"training", true}})},
      {"batch_norm", {{2, 3}}, make_attributes({{"training", false}})},
      pool("max_pool2d", image, {2, 2}, {1, 1}, {2, 0}),
      pool("avg_pool2d", image, {2, 2}, {1, 1}, {0, 2}),
      pool("avg_pool2d", image, {0, 2}, {1, 1}, {0, 0}),
      pool("max_pool2d", image, {-1, 2}, {1, 1}, {0, 0}),
      pool("max_pool2d", image, {2, 2}, {1, 1}, {-1, 0}),
      pool("max_pool2d", image, {2, 2}, {0, 1}, {0, 0}),
      pool("max_pool2d", image, {kHuge, kHuge}, {1, 1}, {kHuge, kHuge}),
      pool("max_pool2d", {1, 1, 0, 4}, {2, 2}, {1, 1}, {1, 1}),
      {"adaptive_avg_pool2d", {{1, 1, 0, 4}}, make_attributes({{"output_size", Dims{1, 1}}})},
      {"adaptive_avg_pool2d", {image}, make_attributes({{"output_size", Dims{1, 5000}}})},
      {"conv_transpose2d", {image, {1, 1, 2, 2}}, make_attributes({{"output_padding", Dims{1, 0}}})},
      {"conv_transpose2d", {{1, 1, 0, 4}, {1, 1, 3, 3}}, {}},
      {"split", {{4}}, make_attributes({{"sizes", Dims{-1, 5}}})},
      {"split", {{4}}, make_attributes({{"sizes", Dims{kHuge, kHuge, kHuge, kHuge, 4}}})},
      {"pad", {{4}}, make_attributes({{"before", kHuge}, {"after", kHuge}})},
  };
  for (const Sample& sample : samples) {
    const std::string prefix = std::string("INVALID_ARGUMENT: ") + sample.op + ": ";
    EXPECT_EQ(outcome(sample, true).substr(0, prefix.size()), prefix);
    EXPECT_EQ(outcome(sample, false).substr(0, prefix.size()), prefix) << outcome(sample, true);
  }
}

// Ops that need an element need none where results have no elements.
TEST(Trace, TakesWhatOpsTake) {
  const std::vector<Sample> samples = {
      {"argmax", {{0, 0}}, {}},
      {"max_with_indices", {{0, 0}}, {}},
      {"norm", {{0, 0}}, make_attributes({{"p", HUGE_VAL}, {"dims", Dims{1}}})},
      {"norm", {{2, 0}}, {}},
      {"group_norm", {{2, 6}}, make_attributes({{"num_groups", 3}})},
      {"batch_norm", {{2, 3}}, {}},
      pool("max_pool2d", {0, 1, 0, 4}, {2, 2}, {1, 1}, {1, 1}),
      pool("avg_pool2d", {1, 1, 4, 4}, {2, 2}, {1, 1}, {1, 1}),
      {"split", {{4}}, make_attributes({{"sizes", Dims{0, 4}}})},
  };
  for (const Sample& sample : samples) {
    EXPECT_EQ(outcome(sample, true), "no failure") << sample.op;
    EXPECT_EQ(outcome(sample, false), "no failure") << sample.op;
  }
}

// A result beyond 2^55 bytes is refused by the name of its op; a sum of sizes is checked before it is made.
TEST(Trace, RefusesSizesOfWhichCostsCannotBeCounted) {
  const Tensor column = make_shape_only(Dtype::kFloat32, {int64_t{1} << 30, 1});
  const Tensor row = make_shape_only(Dtype::kFloat32, {1, int64_t{1} << 23});
  const Tensor wide = make_shape_only(Dtype::kFloat32, {1, int64_t{1} << 24});
  EXPECT_EQ(autograd::apply(*ops::find_op("add"), Tensors{column, row}, {})[0].count(), int64_t{1} << 53);
  EXPECT_EQ(
      failure_of([&] {
        autograd::apply(*ops::find_op("add"), Tensors{column, wide}, {});
      }),
      "INVALID_ARGUMENT: add: float32[1073741824, 16777216] is too large for a plan: its sizes, with 1 for 0, make "
      "more than 2^55 bytes");
  EXPECT_EQ(failure_of([] { make_shape_only(Dtype::kFloat32, {kHuge}); }).substr(0, 16), "INVALID_ARGUMENT");
  layout::Operand half;
  half.shape = {kHuge};
  half.spec = layout::Spec(1);
  const std::vector<layout::Operand> halves(2, half);
  const ops::Attributes none;
  EXPECT_EQ(failure_of([&] {
              layout::rule_of({"concat", none, halves});
            }),
            "INVALID_ARGUMENT: concat: sizes 4611686018427387904 and 4611686018427387904 make more than memory can "
            "hold");
}

}  // namespace
}  // namespace distag::spmd
