// scaled_dot_product_attention: what reference numbers do not show.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "apply_op.h"

namespace distag::testing {
namespace {

TEST(AttentionTest, ARowWithAllHiddenGivesZeros) {
  const Tensor q = floats({2, 1}, {1, 2});
  const Tensor mask = flags({2, 2}, {0, 0, 0, 1});
  EXPECT_EQ(floats_of(run("scaled_dot_product_attention", {q, q, floats({2, 1}, {5, 7}), mask})),
            (std::vector<float>{0, 7}));
}

// As with lines that are padded at their left: the lowest number is added there, and is no hidden score.
TEST(AttentionTest, AddedLowestNumbersShareNothingWithHiddenScores) {
  const Tensor q = floats({2, 1}, {1, 2});
  const float lowest = std::numeric_limits<float>::lowest();
  const Tensor mask = floats({2, 2}, {lowest, 0, lowest, 0});
  EXPECT_EQ(floats_of(run("scaled_dot_product_attention", {q, q, floats({2, 1}, {5, 7}), mask}, {{"is_causal", true}})),
            (std::vector<float>{5, 7}));
}

TEST(AttentionTest, AMaskOfOneNumberHidesAllOrNothing) {
  const Tensor q = floats({2, 1}, {0, 0});
  const Tensor v = floats({2, 1}, {5, 7});
  EXPECT_EQ(floats_of(run("scaled_dot_product_attention", {q, q, v, flags({}, {0})})), (std::vector<float>{0, 0}));
  EXPECT_EQ(floats_of(run("scaled_dot_product_attention", {q, q, v, flags({}, {1})})), (std::vector<float>{6, 6}));
}

TEST(AttentionTest, RefusesWhatDoesNotFit) {
  const Tensor q = floats({2, 1}, {1, 2});
  const char* op = "scaled_dot_product_attention";
  for (const Tensor& mask : {integers({2, 2}, {1, 1, 1, 1}), flags({1, 2, 2}, {1, 1, 1, 1}), flags({3}, {1, 1, 1})}) {
    EXPECT_EQ(failure_of([&] {
                run(op, {q, q, q, mask});
              }).find("INVALID_ARGUMENT: scaled_dot_product_attention: "),
              0u);
  }
  EXPECT_EQ(failure_of([&] {
              run(op, {q, q, q}, {{"scale", HUGE_VAL}});
            }),
            "INVALID_ARGUMENT: scaled_dot_product_attention: scale inf is not finite");
}

}  // namespace
}  // namespace distag::testing
