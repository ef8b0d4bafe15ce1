// Numbers at the edges of a dtype: what is too large, too small, whole, or no number.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "apply_op.h"

namespace distag::testing {
namespace {

// The gradient of the first input, of float32, from ones.
Tensor gradient(const char* name, const Tensors& inputs, std::initializer_list<ops::Setting> settings = {}) {
  const ops::Op* op = ops::find_op(name);
  ops::Saved saved;
  saved.needed = 1;
  const Tensors outputs = op->forward(inputs, ops::make_attributes(settings), &saved);
  Tensor seed = Tensor::empty(outputs[0].dtype(), outputs[0].shape());
  std::fill_n(seed.mutable_data_as<float>(), seed.count(), 1.0F);
  return op->backward(saved, {seed})[0];
}

TEST(EdgesTest, CrossEntropyKeepsASmallLoss) {
  const double exact = std::log1p(std::exp(-8.0));
  Tensor logits = floats({1, 2}, {30, 22});
  EXPECT_NEAR(run("cross_entropy", {logits, integers({1}, {0})}).item(), exact, 4e-7 * exact);
  EXPECT_NEAR(floats_of(run("log_softmax", {logits}))[0], -exact, 4e-7 * exact);
  const double slope = -std::exp(-8.0) / (1 + std::exp(-8.0));
  EXPECT_NEAR(floats_of(gradient("cross_entropy", {logits, integers({1}, {0})}))[0], slope, -4e-7 * slope);
}

TEST(EdgesTest, MeansOfLargeNumbersAreFinite) {
  const Tensor large = floats({4}, {3e38F, 3e38F, 3e38F, 3e38F});
  const Tensor opposite = floats({4}, {-3e38F, -3e38F, -3e38F, -3e38F});
  EXPECT_FLOAT_EQ(static_cast<float>(run("mean", {large}).item()), 3e38F);
  EXPECT_FLOAT_EQ(floats_of(gradient("mse_loss", {large, opposite}))[0], 3e38F);  // 2 (a - b) / 4
  EXPECT_FLOAT_EQ(floats_of(gradient("mse_loss", {floats({1}, {3}), floats({1}, {1})}))[0], 4);
  EXPECT_FLOAT_EQ(static_cast<float>(run("l1_loss", {large, floats({4}, {0, 0, 0, 0})}).item()), 3e38F);
}

TEST(EdgesTest, PowersOfIntegersAreIntegers) {
  const Tensor base = integers({8}, {2, -3, 0, 0, 1, -1, -1, 5});
  const Tensor exponent = integers({8}, {62, 3, 0, -1, INT64_MIN, -3, INT64_MAX, -2});
  const Tensor y = run("pow", {base, exponent});
  ASSERT_EQ(y.dtype(), Dtype::kInt64);
  EXPECT_EQ(integers_of(y), (std::vector<int64_t>{int64_t{1} << 62, -27, 1, 0, 1, -1, -1, 0}));
  EXPECT_EQ(integers_of(run("pow", {integers({1}, {3}), integers({1}, {41})}))[0], -420491770248316829);  // wraps
  EXPECT_EQ(run("pow", {flags({1}, {1}), flags({1}, {0})}).dtype(), Dtype::kInt64);
  EXPECT_EQ(run("pow", {integers({1}, {2}), floats({1}, {0.5F})}).dtype(), Dtype::kFloat32);
}

TEST(EdgesTest, TheGradientOfAPowerThatIsNoNumberIsNone) {
  for (const float slope : floats_of(gradient("pow", {floats({3}, {-2, -2, -2}), floats({3}, {0.5F, 1.5F, -0.5F})}))) {
    EXPECT_TRUE(std::isnan(slope)) << slope;
  }
}

// Exponents from which one can be taken without a change, and that of an infinite one.
TEST(EdgesTest, TheGradientOfAPowerBeyondAllNumbersIsInfinite) {
  const Tensor exponents = floats({3}, {0x1p25F, 0x1p24F, INFINITY});
  EXPECT_EQ(floats_of(gradient("pow", {floats({3}, {4, 4, 2}), exponents})), std::vector<float>(3, INFINITY));
}

// An exponential below all floats but a few, of a mask that is the lowest of them.
TEST(EdgesTest, KlDivOfALargeMaskIsFinite) {
  const float mask = std::numeric_limits<float>::lowest();
  for (const float target : {-45.F, -50.F, -60.F, -69.F, -75.F, -100.F}) {
    const double exact = std::exp(double{target}) * (double{target} - double{mask});
    const Tensor loss =
        run("kl_div", {floats({1}, {mask}), floats({1}, {target})}, {{"reduction", "none"}, {"log_target", true}});
    EXPECT_NEAR(loss.item(), exact, 4e-7 * exact) << target;
  }
}

TEST(EdgesTest, TheGradientOfAMaximumOfNoNumberIsNone) {
  const Tensor x = floats({2, 3}, {1, NAN, 2, 1, 3, 2});
  for (const char* op : {"max", "amin"}) {
    const auto slopes = floats_of(gradient(op, {x}, {{"dims", Dims{1}}}));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(slopes[static_cast<size_t>(i)])) << op << " " << i;
    EXPECT_EQ(slopes[3] + slopes[4] + slopes[5], 1) << op;
  }
}

TEST(EdgesTest, ExpandKeepsASizeOfMinusOne) {
  EXPECT_EQ(run("expand", {floats({2, 1}, {1, 2})}, {{"shape", Dims{3, -1, 4}}}).shape(), (Dims{3, 2, 4}));
  EXPECT_EQ(run("expand", {floats({0}, {})}, {{"shape", Dims{-1}}}).shape(), (Dims{0}));
  EXPECT_NE(failure_of([] { run("expand", {floats({2}, {1, 2})}, {{"shape", Dims{-1, 2}}}); }), "no failure");
  EXPECT_NE(failure_of([] { run("expand", {floats({2}, {1, 2})}, {{"shape", Dims{-2}}}); }), "no failure");
}

TEST(EdgesTest, PromotionIsThatOfPyTorch) {
  EXPECT_EQ(run("add", {integers({1}, {1}), floats({1}, {1})}).dtype(), Dtype::kFloat32);
  EXPECT_EQ(run("div", {integers({1}, {1}), integers({1}, {2})}).dtype(), Dtype::kFloat32);
  EXPECT_EQ(run("add", {floats({1}, {1}), doubles({}, {1})}).dtype(), Dtype::kFloat32);
  EXPECT_EQ(run("add", {integers({1}, {1}), floats({}, {1})}).dtype(), Dtype::kFloat32);
}

TEST(EdgesTest, SizesThatNoInt64HoldsAreRefused) {
  const Tensor view = flags({1}, {1}).view(Dims{INT64_MAX / 2 + 2}, Dims{0}, 0);
  EXPECT_EQ(failure_of([&] { run("concat", {view, view}); }).find("INVALID_ARGUMENT: concat: sizes"), 0u);
  EXPECT_EQ(failure_of([&] {
              run("pad", {view}, {{"before", INT64_MAX / 2}});
            }).find("INVALID_ARGUMENT: pad: sizes"),
            0u);
  EXPECT_NE(failure_of([] {
              run("arange", {}, {{"start", 9.2e18}, {"stop", 1e19}, {"step", 1e17}, {"dtype", Dtype::kInt64}});
            }),
            "no failure");
  EXPECT_EQ(failure_of([] {
              run("zeros", {}, {{"shape", Dims{int64_t{1} << 41}}, {"dtype", Dtype::kBool}});
            }).find("OUT_OF_MEMORY"),
            0u);
}

TEST(EdgesTest, ManyGradientsOfOneElementAddUp) {
  constexpr int64_t kCount = 100000;
  const Tensor tenth = run("full", {}, {{"value", 0.1}, {"shape", Dims{kCount}}});
  const Tensor zeros = run("zeros", {}, {{"shape", Dims{kCount}}, {"dtype", Dtype::kInt64}});
  const double exact = kCount * static_cast<double>(0.1F);
  const auto total = [&](const char* name, const Tensors& inputs, const Dims& seed_shape, size_t input) {
    const ops::Op* op = ops::find_op(name);
    ops::Saved saved;
    saved.needed = ~uint64_t{0};
    op->forward(inputs, ops::make_attributes({{"dim", 0}}), &saved);
    return floats_of(op->backward(saved, {tenth.view(seed_shape, row_major_strides(seed_shape), 0)})[input])[0];
  };
  EXPECT_NEAR(total("gather", {floats({1}, {1}), zeros}, {kCount}, 0), exact, 1e-7 * exact);
  EXPECT_NEAR(total("index_select", {floats({1}, {1}), zeros}, {kCount}, 0), exact, 1e-7 * exact);
  const ops::Op* embedding = ops::find_op("embedding");
  ops::Saved saved;
  saved.needed = ~uint64_t{0};
  embedding->forward(Tensors{zeros, floats({1, 1}, {1})}, {}, &saved);
  EXPECT_NEAR(floats_of(embedding->backward(saved, {tenth.view({kCount, 1}, {1, 1}, 0)})[1])[0], exact, 1e-7 * exact);
}

// In float32 the two ones would be lost.
TEST(EdgesTest, FewGradientsOfOneElementAddUp) {
  constexpr float kLarge = 0x1p24F;
  const auto last = [](const char* name, const Tensors& inputs, std::initializer_list<ops::Setting> attributes,
                       const Tensor& g, size_t input, size_t element) {
    const ops::Op* op = ops::find_op(name);
    ops::Saved saved;
    saved.needed = ~uint64_t{0};
    op->forward(inputs, ops::make_attributes(attributes), &saved);
    return floats_of(op->backward(saved, {g})[input])[element];
  };
  const Tensor zeros = integers({3}, {0, 0, 0});
  const Tensor row = floats({3}, {kLarge, 1, 1}), image = floats({1, 1, 1, 3}, {kLarge, 1, 1});
  EXPECT_EQ(last("gather", {floats({1}, {1}), zeros}, {{"dim", 0}}, row, 0, 0), kLarge + 2);
  const Tensor column = integers({3, 1}, {0, 0, 0});
  EXPECT_EQ(last("gather", {floats({1, 1}, {1}), column}, {{"dim", 0}}, floats({3, 1}, {kLarge, 1, 1}), 0, 0),
            kLarge + 2);
  EXPECT_EQ(last("index_select", {floats({1}, {1}), zeros}, {{"dim", 0}}, row, 0, 0), kLarge + 2);
  EXPECT_EQ(last("embedding", {zeros, floats({1, 1}, {1})}, {}, floats({3, 1}, {kLarge, 1, 1}), 1, 0), kLarge + 2);
  const std::initializer_list<ops::Setting> windows{{"kernel", Dims{1, 3}}, {"stride", Dims{1, 1}}};
  EXPECT_EQ(last("max_pool2d", {floats({1, 1, 1, 5}, {0, 0, 9, 0, 0})}, windows, image, 0, 2), kLarge + 2);
  EXPECT_EQ(last("avg_pool2d", {floats({1, 1, 1, 5}, {0, 0, 9, 0, 0})}, windows,
                 floats({1, 1, 1, 3}, {3 * kLarge, 3, 3}), 0, 2),
            kLarge + 2);
  EXPECT_EQ(last("adaptive_avg_pool2d", {floats({1, 1, 1, 1}, {9})}, {{"output_size", Dims{1, 3}}}, image, 0, 0),
            kLarge + 2);
  for (const char* mode : {"nearest", "bilinear"}) {
    EXPECT_EQ(last("interpolate", {floats({1, 1, 1, 1}, {9})}, {{"size", Dims{1, 3}}, {"mode", mode}}, image, 0, 0),
              kLarge + 2)
        << mode;
  }
}

// As in PyTorch: -x^(-3/2) / 2 has the sign of the zero.
TEST(EdgesTest, TheGradientOfRsqrtHasTheSignOfAZero) {
  const auto slopes = floats_of(gradient("rsqrt", {floats({4}, {-0.0F, 0, 4, -1})}));
  EXPECT_EQ(slopes[0], INFINITY);
  EXPECT_EQ(slopes[1], -INFINITY);
  EXPECT_EQ(slopes[2], -0.0625F);
  EXPECT_TRUE(std::isnan(slopes[3]));
}

TEST(EdgesTest, TheAbsoluteValueOfMinusZeroIsZero) {
  const auto y = floats_of(run("abs", {floats({3}, {-0.0F, 0.0F, -2})}));
  EXPECT_FALSE(std::signbit(y[0]));
  EXPECT_FALSE(std::signbit(y[1]));
  EXPECT_EQ(y[2], 2);
}

// The index occurs often enough that its sums are made in float64.
TEST(EdgesTest, AnEmptyGradientHasTheDtypeOfItsInput) {
  const Tensor zeros = run("zeros", {}, {{"shape", Dims{200}}, {"dtype", Dtype::kInt64}});
  EXPECT_EQ(gradient("index_select", {floats({0, 3}, {}), zeros}, {{"dim", 1}}).dtype(), Dtype::kFloat32);
}

TEST(EdgesTest, TheCrossEntropyOfInfiniteLogitsIsThatOfTheLimit) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Tensor logits = floats({6}, {infinity, infinity, infinity, -infinity, -infinity, -infinity});
  const Tensor targets = floats({6}, {0, 0.3F, 1, 0, 0.3F, 1});
  EXPECT_EQ(floats_of(run("binary_cross_entropy_with_logits", {logits, targets}, {{"reduction", "none"}})),
            (std::vector<float>{infinity, infinity, 0, 0, infinity, infinity}));
}

TEST(EdgesTest, NumbersThatAreNoneAreRefused) {
  const Tensor whole = integers({1}, {3});
  EXPECT_EQ(status_of([&] { run("pad", {whole}, {{"after", 1}, {"value", 1.5}}); }), Status::kInvalidArgument);
  EXPECT_EQ(status_of([&] { run("pad", {whole}, {{"after", 1}, {"value", NAN}}); }), Status::kInvalidArgument);
  EXPECT_EQ(integers_of(run("pad", {whole}, {{"after", 1}, {"value", -2.0}})), (std::vector<int64_t>{3, -2}));
  EXPECT_EQ(status_of([&] { run("clamp", {floats({1}, {1})}, {{"min", NAN}}); }), Status::kInvalidArgument);
}

TEST(EdgesTest, IntegersAreClampedAsIntegers) {
  const Tensor x = integers({4}, {INT64_MIN, -3, (int64_t{1} << 53) + 1, INT64_MAX});
  EXPECT_EQ(integers_of(run("clamp", {x})), integers_of(x));
  EXPECT_EQ(integers_of(run("clamp", {x}, {{"min", -2.0}})),
            (std::vector<int64_t>{-2, -2, (int64_t{1} << 53) + 1, INT64_MAX}));
  EXPECT_EQ(integers_of(run("clamp", {x}, {{"min", -1e19}, {"max", 5}})), (std::vector<int64_t>{INT64_MIN, -3, 5, 5}));
  EXPECT_EQ(integers_of(run("clamp", {flags({2}, {0, 7})}, {{"max", 3}})), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(run("clamp", {integers({0, 2}, {})}, {{"max", 3}}).dtype(), Dtype::kInt64);
  for (const double bound : {0.5, 1e19, HUGE_VAL, static_cast<double>(NAN)}) {
    EXPECT_EQ(failure_of([&] {
                run("clamp", {x}, {{"min", bound}});
              }),
              fmt::format("INVALID_ARGUMENT: clamp: an int64 tensor takes whole numbers within int64 only, not {}; "
                          "cast it to a float dtype first",
                          bound));
  }
}

TEST(EdgesTest, AttributesThatAreNoNumbersAreRefusedByName) {
  const Tensor x = floats({2, 2}, {1, 2, 3, 5});
  const std::pair<const char*, const char*> attributes[] = {{"var", "correction"},
                                                            {"std", "correction"},
                                                            {"layer_norm", "eps"},
                                                            {"rms_norm", "eps"},
                                                            {"leaky_relu", "negative_slope"},
                                                            {"elu", "alpha"}};
  for (const auto& [op, attribute] : attributes) {
    for (const double value : {static_cast<double>(NAN), HUGE_VAL, -HUGE_VAL}) {
      try {
        run(op, {x}, {{attribute, value}});
        ADD_FAILURE() << op << " took " << attribute << " " << value;
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kInvalidArgument);
        EXPECT_NE(std::string(error.message()).find(fmt::format("{}: {} ", op, attribute)), std::string::npos)
            << error.message();
      }
    }
  }
  EXPECT_EQ(status_of([&] { run("layer_norm", {x}, {{"eps", -1e-5}}); }), Status::kInvalidArgument);
  EXPECT_EQ(floats_of(run("var", {x}, {{"dims", Dims{0}}, {"correction", 0}})), (std::vector<float>{1, 2.25F}));
}

}  // namespace
}  // namespace distag::testing
