#include <gtest/gtest.h>

#include <cmath>

#include "apply_op.h"

namespace distag::testing {
namespace {

TEST(ChannelNormsTest, SquaresOfFloatsDoNotOverflow) {
  EXPECT_EQ(floats_of(run("rms_norm", {floats({2}, {3e30f, -3e30f})})), (std::vector<float>{1, -1}));
}

TEST(ChannelNormsTest, RowsWithoutElementsCostNothing) {
  const int64_t many = int64_t{1} << 40;
  const Dims shapes[] = {Dims{many, 0}, Dims{0, 3}};
  for (const Dims& shape : shapes) {
    EXPECT_EQ(run("rms_norm", {Tensor::empty(Dtype::kFloat32, shape)}).shape(), shape);
  }
}

TEST(ChannelNormsTest, RefuseWhatDoesNotFit) {
  const Tensor x = floats({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (const int64_t groups : {int64_t{0}, int64_t{-1}, int64_t{3}, INT64_MAX}) {
    EXPECT_EQ(failure_of([&] {
                run("group_norm", {x}, {{"num_groups", groups}});
              }).find("INVALID_ARGUMENT: group_norm: num_groups " + std::to_string(groups)),
              0u);
  }
  for (const int64_t dims : {int64_t{0}, int64_t{-1}, int64_t{3}, INT64_MAX}) {
    EXPECT_EQ(failure_of([&] {
                run("rms_norm", {x}, {{"normalized_dims", dims}});
              }).find("INVALID_ARGUMENT: rms_norm: normalized_dims " + std::to_string(dims)),
              0u);
  }
  EXPECT_EQ(failure_of([&] {
              run("batch_norm", {x}, {{"eps", -1.0}});
            }),
            "INVALID_ARGUMENT: batch_norm: eps -1 is not 0 or more");
  EXPECT_EQ(failure_of([&] {
              run("batch_norm", {x}, {{"training", false}});
            }),
            "INVALID_ARGUMENT: batch_norm: without training it needs running_mean and running_var");
  const Tensor channels = floats({4}, {1, 1, 1, 1});
  EXPECT_EQ(
      failure_of([&] {
        run("batch_norm", {x, Tensor(), Tensor(), channels, channels});
      }),
      "INVALID_ARGUMENT: batch_norm: training takes mean and variance of x: leave out running_mean and running_var");
  EXPECT_EQ(failure_of([&] {
              run("batch_norm", {x, floats({3}, {1, 1, 1})});
            }),
            "INVALID_ARGUMENT: batch_norm: float32[3] does not fit float32[2, 4]: float32[4] does");
}

TEST(ChannelNormsTest, OfABatchLeaveGivenStatisticsAlone) {
  const Tensor mean = floats({2}, {1, 2});
  const Tensor variance = floats({2}, {4, 0});
  const Tensor y = run("batch_norm", {floats({1, 2}, {5, 4}), Tensor(), Tensor(), mean, variance},
                       {{"training", false}, {"eps", 0.0}});
  EXPECT_EQ(floats_of(y), (std::vector<float>{2, INFINITY}));
  EXPECT_EQ(floats_of(mean), (std::vector<float>{1, 2}));
  EXPECT_EQ(floats_of(variance), (std::vector<float>{4, 0}));
}

TEST(ChannelNormsTest, KeepNaNsInTheirRowsAndChannels) {
  const float nan = NAN;
  const auto is_nan = [](const Tensor& y) {
    std::vector<bool> result;
    for (const float each : floats_of(y)) result.push_back(std::isnan(each));
    return result;
  };
  const Tensor x = floats({2, 2}, {nan, 1, 2, 3});
  EXPECT_EQ(is_nan(run("rms_norm", {x})), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(is_nan(run("group_norm", {x}, {{"num_groups", 1}})), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(is_nan(run("batch_norm", {x})), (std::vector<bool>{true, false, true, false}));
}

}  // namespace
}  // namespace distag::testing
