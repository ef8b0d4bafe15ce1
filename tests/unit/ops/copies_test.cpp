#include <gtest/gtest.h>

#include <cmath>

#include "apply_op.h"
#include "ops/broadcast.h"

namespace distag::testing {
namespace {

std::string refused_copies(const char* op, const Tensors& inputs, std::initializer_list<ops::Setting> settings) {
  return failure_of([&] { run(op, inputs, settings); });
}

TEST(InterpolateTest, RefusesSizesAndModes) {
  const Tensor image = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  for (const Dims& size : {Dims{0, 1}, Dims{1, -1}, Dims{INT64_MAX, 1}, Dims{1 << 14, (1 << 14) + 1}, Dims{2}}) {
    EXPECT_EQ(refused_copies("interpolate", {image}, {{"size", size}}),
              "INVALID_ARGUMENT: interpolate: size " + to_string(size) +
                  " must be two numbers above 0 with a product of 268435456 at most");
  }
  EXPECT_EQ(refused_copies("interpolate", {image}, {{"size", Dims{1, 1}}, {"mode", "cubic"}}),
            "INVALID_ARGUMENT: interpolate: mode \"cubic\" is neither nearest nor bilinear");
  EXPECT_EQ(refused_copies("interpolate", {image}, {{"size", Dims{1, 1}}, {"align_corners", true}}),
            "INVALID_ARGUMENT: interpolate: align_corners needs mode bilinear, not nearest");
  EXPECT_EQ(refused_copies("interpolate", {floats({1, 1, 0, 1}, {})}, {{"size", Dims{1, 1}}}),
            "INVALID_ARGUMENT: interpolate: x must be [n, c, h, w] with rows and columns, not float32[1, 1, 0, 1]");
}

TEST(InterpolateTest, WhatLiesBetweenIsNotLargerThanNeeded) {
  const Tensor column = ops::broadcast_to(Tensor::scalar(Dtype::kFloat32, 2.0), Dims{1, 1, 1 << 20, 1});
  for (const char* mode : {"nearest", "bilinear"}) {
    const Tensor y = run("interpolate", {column}, {{"size", Dims{1, 1 << 20}}, {"mode", mode}});
    EXPECT_EQ(floats_of(y).back(), 2.0F);
  }
}

TEST(InterpolateTest, NearestKeepsSpecialNumbers) {
  const Tensor x = floats({1, 1, 1, 3}, {INFINITY, -0.0F, NAN});
  const std::vector<float> y = floats_of(run("interpolate", {x}, {{"size", Dims{1, 6}}}));
  EXPECT_EQ(y[1], INFINITY);
  EXPECT_TRUE(std::signbit(y[2]) && y[2] == 0);
  EXPECT_TRUE(std::isnan(y[5]));
}

TEST(RepeatTest, KeepsAnyDtypeInMemoryOfItsOwn) {
  const Tensor x = integers({2}, {1, INT64_MAX});
  EXPECT_EQ(integers_of(run("repeat", {x}, {{"repeats", Dims{2, 1}}})),
            (std::vector<int64_t>{1, INT64_MAX, 1, INT64_MAX}));
  EXPECT_EQ(flags_of(run("repeat", {flags({1}, {1})}, {{"repeats", Dims{3}}})), (std::vector<uint8_t>{1, 1, 1}));
  EXPECT_NE(run("repeat", {x}, {{"repeats", Dims{1}}}).data(), x.data());
}

TEST(RepeatTest, RefusesCountsOutOfRange) {
  const Tensor x = floats({2}, {1, 2});
  for (const Dims& repeats : {Dims{}, Dims{-1}, Dims{INT64_MAX}, Dims{2, (1 << 24) + 1}}) {
    EXPECT_EQ(refused_copies("repeat", {x}, {{"repeats", repeats}}),
              "INVALID_ARGUMENT: repeat: repeats " + to_string(repeats) +
                  " must be 1 numbers or more, from 0 to 16777216, for float32[2]");
  }
  EXPECT_EQ(refused_copies("repeat", {x}, {{"repeats", Dims{1 << 24, 1 << 24, 1 << 24}}}),
            "INVALID_ARGUMENT: shape [16777216, 16777216, 33554432] has more elements than memory can hold");
}

// Sums of several dims are rounded once.
TEST(RepeatTest, AddsUpTheGradientsOfCopies) {
  const ops::Op* op = ops::find_op("repeat");
  ops::Saved saved;
  saved.needed = 1;
  op->forward(Tensors{floats({2}, {1, 2})}, ops::make_attributes({{"repeats", Dims{2, 2}}}), &saved);
  const Tensor g = floats({2, 4}, {1, 10, 2, 20, 3, 30, 4, 40});
  EXPECT_EQ(floats_of(op->backward(saved, {g})[0]), (std::vector<float>{10, 100}));
}

}  // namespace
}  // namespace distag::testing
