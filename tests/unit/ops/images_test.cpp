#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "apply_op.h"
#include "ops/broadcast.h"
#include "ops/views.h"

namespace distag::testing {
namespace {

Tensor counted_from_1(const Dims& shape) {
  Tensor x = Tensor::empty(Dtype::kFloat64, shape);
  for (int64_t i = 0; i < x.count(); ++i) x.mutable_data_as<double>()[i] = static_cast<double>(i * 5 % 11) - 4;
  return x;
}

struct WindowSetting {
  int64_t stride[2];
  int64_t padding[2];
  int64_t dilation[2];
  int64_t groups;
};

double element(const Tensor& x, int64_t n, int64_t c, int64_t h, int64_t w) {
  const Dims& shape = x.shape();
  if (h < 0 || w < 0 || h >= shape[2] || w >= shape[3]) return 0;
  return x.data_as<double>()[((n * shape[1] + c) * shape[2] + h) * shape[3] + w];
}

// By the definition, element by element.
double convolved(const Tensor& x, const Tensor& weight, const WindowSetting& s, int64_t n, int64_t o, int64_t h,
                 int64_t w) {
  double sum = 0;
  int64_t first = o / (weight.shape()[0] / s.groups) * weight.shape()[1];
  for (int64_t c = 0; c < weight.shape()[1]; ++c) {
    for (int64_t i = 0; i < weight.shape()[2]; ++i) {
      for (int64_t j = 0; j < weight.shape()[3]; ++j) {
        sum +=
            element(weight, o, c, i, j) * element(x, n, first + c, h * s.stride[0] - s.padding[0] + i * s.dilation[0],
                                                  w * s.stride[1] - s.padding[1] + j * s.dilation[1]);
      }
    }
  }
  return sum;
}

TEST(Conv2dTest, EqualsItsDefinition) {
  const WindowSetting window_settings[] = {{{1, 1}, {0, 0}, {1, 1}, 1}, {{2, 3}, {1, 2}, {1, 1}, 1},
                                           {{1, 1}, {4, 5}, {2, 3}, 1}, {{3, 1}, {2, 0}, {1, 2}, 2},
                                           {{1, 2}, {7, 7}, {3, 1}, 4}, {{9, 9}, {1, 1}, {1, 1}, 1}};
  for (const WindowSetting& s : window_settings) {
    Tensor x = counted_from_1({2, 4, 7, 6});
    Tensor weight = counted_from_1({8, 4 / s.groups, 3, 2});
    Tensor bias = counted_from_1({8});
    Tensor y = run("conv2d", {x, weight, bias},
                   {{"stride", Dims{s.stride[0], s.stride[1]}},
                    {"padding", Dims{s.padding[0], s.padding[1]}},
                    {"dilation", Dims{s.dilation[0], s.dilation[1]}},
                    {"groups", s.groups}});
    ASSERT_GT(y.count(), 0);
    for (int64_t i = 0; i < y.count(); ++i) {
      int64_t w = i % y.shape()[3];
      int64_t h = i / y.shape()[3] % y.shape()[2];
      int64_t o = i / (y.shape()[3] * y.shape()[2]) % 8;
      int64_t n = i / (y.shape()[3] * y.shape()[2] * 8);
      ASSERT_EQ(y.data_as<double>()[i], convolved(x, weight, s, n, o, h, w) + bias.data_as<double>()[o]) << i;
    }
  }
}

struct RandomConvolution {
  Tensor x, weight, bias;
  WindowSetting setting;
  ops::Attributes attributes() const {
    return ops::make_attributes({{"stride", Dims{setting.stride[0], setting.stride[1]}},
                                 {"padding", Dims{setting.padding[0], setting.padding[1]}},
                                 {"dilation", Dims{setting.dilation[0], setting.dilation[1]}},
                                 {"groups", setting.groups}});
  }
};

// Rows of y of up to 70 elements, mostly with a column stride of 1: whole vectors of every machine, and parts of them.
RandomConvolution random_convolution(std::minstd_rand& random) {
  auto below = [&random](int64_t limit) { return static_cast<int64_t>(random()) % limit; };
  const int64_t groups = 1 + below(3);
  const Dims kernel{1 + below(4), 1 + below(4)};
  const WindowSetting s{
      {1 + below(2), below(4) == 0 ? 2 : 1}, {below(3), below(3)}, {1 + below(2), 1 + below(3)}, groups};
  const Dims image{(kernel[0] - 1) * s.dilation[0] + 1 + below(5), (kernel[1] - 1) * s.dilation[1] + 1 + below(70)};
  const int64_t in_channels = below(8) == 0 ? 33 : 1 + below(4);  // of a group
  const int64_t out_channels = groups * (1 + below(11));
  return {counted_from_1({1 + below(2), groups * in_channels, image[0], image[1]}),
          counted_from_1({out_channels, in_channels, kernel[0], kernel[1]}), counted_from_1({out_channels}), s};
}

// Adds g of one position of y to the gradients of all that it was made of.
void add_gradients(Tensor& of_x, Tensor& of_weight, const RandomConvolution& c, double g, int64_t n, int64_t o,
                   int64_t h, int64_t w) {
  const Dims& weight = c.weight.shape();
  const Dims& image = c.x.shape();
  const int64_t first = o / (weight[0] / c.setting.groups) * weight[1];
  for (int64_t e = 0; e < weight[1] * weight[2] * weight[3]; ++e) {
    const int64_t row =
        h * c.setting.stride[0] - c.setting.padding[0] + e / weight[3] % weight[2] * c.setting.dilation[0];
    const int64_t column = w * c.setting.stride[1] - c.setting.padding[1] + e % weight[3] * c.setting.dilation[1];
    if (row < 0 || column < 0 || row >= image[2] || column >= image[3]) continue;
    const int64_t from = ((n * image[1] + first + e / (weight[2] * weight[3])) * image[2] + row) * image[3] + column;
    const int64_t by = o * weight[1] * weight[2] * weight[3] + e;
    of_x.mutable_data_as<double>()[from] += g * c.weight.data_as<double>()[by];
    of_weight.mutable_data_as<double>()[by] += g * c.x.data_as<double>()[from];
  }
}

// The numbers are whole, so that no order of the sums rounds.
void check_against_definition(const RandomConvolution& c, Dtype dtype) {
  const ops::Op* op = ops::find_op("conv2d");
  ops::Saved saved;
  saved.needed = 0b111;
  const Tensors inputs{ops::as_dtype(c.x, dtype), ops::as_dtype(c.weight, dtype), ops::as_dtype(c.bias, dtype)};
  const Tensor y = ops::as_dtype(op->forward(inputs, c.attributes(), &saved)[0], Dtype::kFloat64);
  const Tensor g = counted_from_1(y.shape());
  Tensor of_x = ops::zero_tensor(Dtype::kFloat64, c.x.shape());
  Tensor of_weight = ops::zero_tensor(Dtype::kFloat64, c.weight.shape());
  for (int64_t i = 0; i < y.count(); ++i) {
    const int64_t w = i % y.shape()[3];
    const int64_t h = i / y.shape()[3] % y.shape()[2];
    const int64_t o = i / (y.shape()[3] * y.shape()[2]) % y.shape()[1];
    const int64_t n = i / (y.shape()[3] * y.shape()[2] * y.shape()[1]);
    ASSERT_EQ(y.data_as<double>()[i], convolved(c.x, c.weight, c.setting, n, o, h, w) + c.bias.data_as<double>()[o])
        << i;
    add_gradients(of_x, of_weight, c, g.data_as<double>()[i], n, o, h, w);
  }
  const Tensors found = op->backward(saved, {ops::as_dtype(g, dtype)});
  ASSERT_EQ(values_of<double>(ops::as_dtype(found[0], Dtype::kFloat64)), values_of<double>(of_x));
  ASSERT_EQ(values_of<double>(ops::as_dtype(found[1], Dtype::kFloat64)), values_of<double>(of_weight));
}

TEST(Conv2dTest, EqualsItsDefinitionForAnyShape) {
  std::minstd_rand random(7);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(round);
    const RandomConvolution c = random_convolution(random);
    check_against_definition(c, round % 2 == 0 ? Dtype::kFloat32 : Dtype::kFloat64);
    if (HasFatalFailure()) return;
  }
}

TEST(Conv2dTest, AnInfinityReachesOnlyTheWeightsThatMeetIt) {
  const ops::Op* op = ops::find_op("conv2d");
  ops::Saved saved;
  saved.needed = 0b10;
  std::vector<float> row(19, 1);
  row.back() = INFINITY;  // beyond the 17 positions of the first element of the kernel
  op->forward(Tensors{floats({1, 1, 1, 19}, row), floats({1, 1, 1, 3}, {1, 1, 1})}, ops::make_attributes({}), &saved);
  EXPECT_EQ(floats_of(op->backward(saved, {floats({1, 1, 1, 17}, std::vector<float>(17, 1))})[1]),
            (std::vector<float>{17, 17, INFINITY}));
}

TEST(Conv2dTest, TakesImagesOfNothing) {
  Tensor weight = counted_from_1({2, 3, 1, 1});
  EXPECT_EQ(run("conv2d", {counted_from_1({0, 3, 4, 4}), weight}).shape(), (Dims{0, 2, 4, 4}));
  Tensor y = run("conv2d", {counted_from_1({1, 0, 2, 2}), counted_from_1({2, 0, 1, 1}), counted_from_1({2})});
  EXPECT_EQ(values_of<double>(y), (std::vector<double>{-4, -4, -4, -4, 1, 1, 1, 1}));
}

TEST(Conv2dTest, SaysWhatDoesNotFit) {
  Tensor x = counted_from_1({1, 4, 5, 5});
  auto failure = [&](const Tensor& weight, std::initializer_list<ops::Setting> settings) {
    return failure_of([&] { run("conv2d", {x, weight}, settings); });
  };
  EXPECT_EQ(
      failure(counted_from_1({2, 3, 3, 3}), {}).find("INVALID_ARGUMENT: conv2d: x float64[1, 4, 5, 5] and weight"), 0u);
  EXPECT_EQ(failure(counted_from_1({3, 2, 3, 3}), {{"groups", 2}}).find("INVALID_ARGUMENT: conv2d"), 0u);
  EXPECT_EQ(failure(counted_from_1({2, 4, 3, 3}), {{"groups", 0}}).find("INVALID_ARGUMENT: conv2d"), 0u);
  EXPECT_EQ(failure(counted_from_1({2, 4, 6, 3}), {}).find("INVALID_ARGUMENT: conv2d: a window of [6, 3]"), 0u);
  EXPECT_EQ(failure(counted_from_1({2, 4, 3, 3}), {{"stride", Dims{0, 1}}}).find("INVALID_ARGUMENT: conv2d: stride"),
            0u);
  EXPECT_EQ(failure(counted_from_1({2, 4, 3, 3}), {{"padding", Dims{1}}}).find("INVALID_ARGUMENT: conv2d: padding"),
            0u);
  EXPECT_EQ(
      failure(counted_from_1({2, 4, 3, 3}), {{"dilation", Dims{1, 0}}}).find("INVALID_ARGUMENT: conv2d: dilation"), 0u);
  EXPECT_EQ(failure_of([&] {
              run("conv2d", {x, counted_from_1({2, 4, 3, 3}), counted_from_1({3})});
            }).find("INVALID_ARGUMENT: conv2d: bias float64[3]"),
            0u);
}

TEST(MaxPool2dTest, TakesTheLargestOfEachWindow) {
  Tensor x = floats({1, 1, 3, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_EQ(floats_of(run("max_pool2d", {x}, {{"kernel", Dims{2, 2}}})), (std::vector<float>{6, 8}));
  Tensor padded = run("max_pool2d", {x}, {{"kernel", Dims{2, 2}}, {"stride", Dims{2, 3}}, {"padding", Dims{1, 1}}});
  EXPECT_EQ(padded.shape(), (Dims{1, 1, 2, 2}));
  EXPECT_EQ(floats_of(padded), (std::vector<float>{1, 4, 9, 12}));
  Tensor negative = floats({1, 1, 1, 2}, {-5, -7});
  EXPECT_EQ(floats_of(run("max_pool2d", {negative}, {{"kernel", Dims{1, 2}}, {"padding", Dims{0, 1}}})),
            (std::vector<float>{-5, -7}));
  EXPECT_TRUE(std::isnan(
      floats_of(run("max_pool2d", {floats({1, 1, 1, 3}, {1, std::nanf(""), 2})}, {{"kernel", Dims{1, 3}}}))[0]));
}

TEST(MaxPool2dTest, LooksOnlyAtTheImageOfAHugeWindow) {
  int64_t size = int64_t{1} << 30;
  Tensor y = run("max_pool2d", {floats({1, 1, 1, 2}, {3, 4})},
                 {{"kernel", Dims{size, size}}, {"stride", Dims{size, size}}, {"padding", Dims{size / 2, size / 2}}});
  EXPECT_EQ(floats_of(y), (std::vector<float>{4}));
}

// The outputs of max_pool2d for a row of an image, and the gradient of the image where that of each output is 1.
struct PooledRow {
  std::vector<float> largest;
  std::vector<float> gradient;
};

PooledRow pooled_by_definition(const std::vector<float>& x, int64_t kernel, int64_t stride, int64_t padding) {
  PooledRow result{{}, std::vector<float>(x.size())};
  const auto size = static_cast<int64_t>(x.size());
  for (int64_t start = -padding; start + kernel <= size + padding; start += stride) {
    int64_t best = std::max<int64_t>(start, 0);
    for (int64_t i = best; i < std::min(start + kernel, size); ++i) {
      const float one = x[static_cast<size_t>(i)];
      const float other = x[static_cast<size_t>(best)];
      if (one > other || (std::isnan(one) && !std::isnan(other))) best = i;
    }
    result.largest.push_back(x[static_cast<size_t>(best)]);
    result.gradient[static_cast<size_t>(best)] += 1;
  }
  return result;
}

TEST(MaxPool2dTest, RowsOfAnyWidthEqualTheirDefinition) {
  for (const int64_t size : {15, 16, 17, 33, 600}) {
    std::vector<float> x(static_cast<size_t>(size));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 13);
    for (size_t i = 3; i < x.size(); i += 11) x[i] = i % 2 == 0 ? std::nanf("") : -HUGE_VALF;
    x[0] = x[1] = -HUGE_VALF;
    for (const auto& [kernel, stride, padding] : {std::array<int64_t, 3>{1, 1, 0}, {3, 1, 1}, {2, 2, 1}, {5, 1, 2}}) {
      const PooledRow expected = pooled_by_definition(x, kernel, stride, padding);
      ops::Saved saved;
      saved.needed = 1;
      const Tensor y =
          ops::find_op("max_pool2d")
              ->forward(Tensors{floats({1, 1, 1, size}, x)},
                        ops::make_attributes(
                            {{"kernel", Dims{1, kernel}}, {"padding", Dims{0, padding}}, {"stride", Dims{1, stride}}}),
                        &saved)[0];
      const auto bits = [](const std::vector<float>& all) {
        return std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float));
      };
      EXPECT_EQ(bits(floats_of(y)), bits(expected.largest)) << size << " by " << kernel;
      const Tensor ones = floats(y.shape(), std::vector<float>(expected.largest.size(), 1.0f));
      EXPECT_EQ(floats_of(ops::find_op("max_pool2d")->backward(saved, {ones})[0]), expected.gradient);
    }
  }
}

// Planes of several rows, wide enough for vectors, with ties and NaN across the rows of a window.
TEST(MaxPool2dTest, WideImagesEqualTheirDefinition) {
  constexpr int64_t kPlanes = 4, kRows = 3, kColumns = 40;
  std::vector<float> x(kPlanes * kRows * kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 5);
  for (size_t i = 7; i < x.size(); i += 29) x[i] = std::nanf("");
  std::vector<float> largest, gradient(x.size());
  for (int64_t p = 0; p < kPlanes; ++p) {
    for (int64_t top = -1; top + 2 <= kRows + 1; ++top) {
      for (int64_t left = -1; left + 3 <= kColumns + 1; ++left) {
        int64_t best = -1;
        for (int64_t r = std::max<int64_t>(top, 0); r < std::min(top + 2, kRows); ++r) {
          for (int64_t c = std::max<int64_t>(left, 0); c < std::min(left + 3, kColumns); ++c) {
            const int64_t i = (p * kRows + r) * kColumns + c;
            const float one = x[static_cast<size_t>(i)], other = best < 0 ? one : x[static_cast<size_t>(best)];
            if (best < 0 || one > other || (std::isnan(one) && !std::isnan(other))) best = i;
          }
        }
        largest.push_back(x[static_cast<size_t>(best)]);
        gradient[static_cast<size_t>(best)] += 1;
      }
    }
  }
  ops::Saved saved;
  saved.needed = 1;
  const ops::Op* op = ops::find_op("max_pool2d");
  const Tensor y = op->forward(
      Tensors{floats({2, 2, kRows, kColumns}, x)},
      ops::make_attributes({{"kernel", Dims{2, 3}}, {"padding", Dims{1, 1}}, {"stride", Dims{1, 1}}}), &saved)[0];
  const std::vector<float> got = floats_of(y);
  ASSERT_EQ(got.size(), largest.size());
  EXPECT_EQ(std::memcmp(got.data(), largest.data(), got.size() * sizeof(float)), 0);
  const Tensor ones = floats(y.shape(), std::vector<float>(largest.size(), 1.0f));
  EXPECT_EQ(floats_of(op->backward(saved, {ones})[0]), gradient);
}

TEST(MaxPool2dTest, NoImagesOfAnySizeNeedNoMemory) {
  EXPECT_EQ(run("max_pool2d", {floats({0, 1, int64_t{1} << 40, 1}, {})}, {{"kernel", Dims{1, 1}}}).count(), 0);
}

TEST(MaxPool2dTest, LooksOnlyAtTheImageOfAHugeWindowThatMovesByOne) {
  const int64_t size = int64_t{1} << 30;
  const Tensor y = run("max_pool2d", {floats({1, 1, 1, 20}, std::vector<float>(20, 3.0f))},
                       {{"kernel", Dims{1, size}}, {"stride", Dims{1, 1}}, {"padding", Dims{0, size / 2}}});
  EXPECT_EQ(floats_of(y), std::vector<float>(21, 3.0f));
}

TEST(MaxPool2dTest, GivesTheGradientToTheFirstLargest) {
  const ops::Op* op = ops::find_op("max_pool2d");
  ops::Saved saved;
  saved.needed = 1;
  op->forward(Tensors{floats({1, 1, 1, 4}, {2, 2, 1, 2})},
              ops::make_attributes({{"kernel", Dims{1, 2}}, {"stride", Dims{1, 1}}}), &saved);
  EXPECT_EQ(floats_of(op->backward(saved, {floats({1, 1, 1, 3}, {1, 10, 100})})[0]),
            (std::vector<float>{1, 10, 0, 100}));
}

TEST(MaxPool2dTest, SaysWhatDoesNotFit) {
  Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(failure_of([&] {
              run("max_pool2d", {x}, {{"kernel", Dims{2, 2}}, {"padding", Dims{2, 0}}});
            }),
            "INVALID_ARGUMENT: max_pool2d: padding [2, 0] is more than half of the kernel [2, 2]");
  EXPECT_EQ(failure_of([&] { run("max_pool2d", {x}, {{"kernel", Dims{3, 3}}}); }).find("INVALID_ARGUMENT"), 0u);
  EXPECT_EQ(failure_of([&] {
              run("max_pool2d", {floats({2}, {1, 2})}, {{"kernel", Dims{1, 1}}});
            }).find("INVALID_ARGUMENT: max_pool2d: x must be [n, c, h, w]"),
            0u);
}

TEST(AdaptiveAveragePoolTest, RefusesSizesOutOfRange) {
  const Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4});
  for (const Dims& size : {Dims{0, 1}, Dims{-1, 1}, Dims{INT64_MAX, 1}, Dims{4097, 1}}) {
    EXPECT_EQ(failure_of([&] {
                run("adaptive_avg_pool2d", {x}, {{"output_size", size}});
              }),
              "INVALID_ARGUMENT: adaptive_avg_pool2d: output_size " + to_string(size) +
                  " of float32[1, 1, 2, 2] is not from 1 to 4096 along dim 2");
  }
  EXPECT_EQ(failure_of([&] {
              run("adaptive_avg_pool2d", {x}, {{"output_size", Dims{2}}});
            }),
            "INVALID_ARGUMENT: adaptive_avg_pool2d: output_size [2] must be two numbers");
}

TEST(AdaptiveAveragePoolTest, GivesAsManyAsALongSideHas) {
  const Tensor x = Tensor::empty(Dtype::kFloat32, Dims{1, 1, 5000, 1});
  EXPECT_EQ(run("adaptive_avg_pool2d", {x}, {{"output_size", Dims{5000, 1}}}).shape(), x.shape());
}

}  // namespace
}  // namespace distag::testing
