#include <gtest/gtest.h>

#include <cmath>

#include "apply_op.h"

namespace distag::testing {
namespace {

std::string refused_convolution(const char* op, const Tensors& inputs, std::initializer_list<ops::Setting> settings) {
  return failure_of([&] { run(op, inputs, settings); });
}

TEST(Conv1dTest, RefusesWhatDoesNotFit) {
  const Tensor row = floats({1, 1, 3}, {1, 2, 3});
  const Tensor tap = floats({1, 1, 1}, {2});
  for (const int64_t stride : {int64_t{0}, int64_t{-1}, INT64_MAX}) {
    EXPECT_EQ(
        refused_convolution("conv1d", {row, tap}, {{"stride", Dims{stride}}}),
        "INVALID_ARGUMENT: conv1d: stride [" + std::to_string(stride) + "] must be one number from 1 to 1073741824");
  }
  EXPECT_EQ(refused_convolution("conv1d", {row, tap}, {{"padding", Dims{1, 1}}}),
            "INVALID_ARGUMENT: conv1d: padding [1, 1] must be one number from 0 to 1073741824");
  EXPECT_EQ(refused_convolution("conv1d", {row, floats({1, 1, 2}, {1, 1})}, {{"dilation", Dims{3}}}),
            "INVALID_ARGUMENT: conv1d: a window of 2 with dilation 3 does not fit into 3 with padding 0");
  EXPECT_EQ(refused_convolution("conv1d", {row, floats({1, 1, 0}, {})}, {}),
            "INVALID_ARGUMENT: conv1d: kernel [0] must be one number from 1 to 1073741824");
  EXPECT_EQ(refused_convolution("conv1d", {row, tap}, {{"groups", INT64_MAX}}),
            "INVALID_ARGUMENT: conv1d: x float32[1, 1, 3] and weight float32[1, 1, 1] with 9223372036854775807 groups "
            "do not fit: [n, c, l] and [out, c / groups, k] do");
  EXPECT_EQ(refused_convolution("conv1d", {row, tap, floats({2}, {1, 1})}, {}),
            "INVALID_ARGUMENT: conv1d: bias float32[2] does not fit weight float32[1, 1, 1]");
  EXPECT_EQ(refused_convolution("conv1d", {integers({1, 1, 1}, {1}), integers({1, 1, 1}, {1})}, {}),
            "UNSUPPORTED: conv1d: dtype of int64[1, 1, 1] is not supported: cast it first");
}

TEST(ConvTranspose2dTest, RefusesWhatDoesNotFit) {
  const char* op = "conv_transpose2d";
  const Tensor image = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  const Tensor pixel = floats({1, 1, 1, 1}, {2});
  EXPECT_EQ(refused_convolution(op, {image, pixel}, {{"output_padding", Dims{0, 1}}}),
            "INVALID_ARGUMENT: conv_transpose2d: output_padding [0, 1] must be below the stride [1, 1]");
  EXPECT_EQ(
      refused_convolution(op, {image, pixel}, {{"padding", Dims{1, 1}}}),
      "INVALID_ARGUMENT: conv_transpose2d: an image of 0 rows and 0 columns has not from 1 to 268435456 elements");
  EXPECT_EQ(refused_convolution(op, {image, pixel}, {{"stride", Dims{1 << 20, 1 << 20}}}),
            "INVALID_ARGUMENT: conv_transpose2d: an image of 1048577 rows and 1048577 columns has not from 1 to "
            "268435456 elements");
  EXPECT_EQ(refused_convolution(op, {image, pixel}, {{"stride", Dims{INT64_MAX, 1}}}),
            "INVALID_ARGUMENT: conv_transpose2d: stride [9223372036854775807, 1] must be two numbers (rows, columns) "
            "from 1 to 1073741824");
  EXPECT_EQ(
      refused_convolution(op, {image, floats({1, 1, 0, 1}, {})}, {}),
      "INVALID_ARGUMENT: conv_transpose2d: kernel [0, 1] must be two numbers (rows, columns) from 1 to 1073741824");
  EXPECT_EQ(refused_convolution(op, {image, pixel, floats({2}, {1, 1})}, {}),
            "INVALID_ARGUMENT: conv_transpose2d: bias float32[2] does not fit weight float32[1, 1, 1, 1]");
}

}  // namespace
}  // namespace distag::testing
