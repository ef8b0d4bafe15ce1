#include "optim/settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "base/error.h"
#include "optim/local_optimizer.h"
#include "optim/norm.h"
#include "optim/rules.h"
#include "support/tensors.h"

namespace distag::optim {
namespace {

std::string refusal(Settings& settings, const char* name, double value, Status expected) {
  try {
    settings.set(name, value);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), expected);
    return error.message();
  }
  ADD_FAILURE() << name << " = " << value << " was taken";
  return "";
}

TEST(SettingsTest, DefaultsAreThoseOfPyTorch) {
  const auto initial = [](const Rule& rule, const std::string& name) {
    for (const Setting& setting : rule.settings) {
      if (setting.name == name) return setting.initial;
    }
    ADD_FAILURE() << rule.name << " has no " << name;
    return 0.0;
  };
  EXPECT_EQ(initial(kSgd, "lr"), 1e-3);
  EXPECT_EQ(initial(kAdagrad, "lr"), 1e-2);
  EXPECT_EQ(initial(kAdagrad, "eps"), 1e-10);
  EXPECT_EQ(initial(kAdam, "beta2"), 0.999);
  EXPECT_EQ(initial(kAdam, "weight_decay"), 0);
  EXPECT_EQ(initial(kAdamw, "weight_decay"), 1e-2);
  EXPECT_EQ(initial(kAdadelta, "lr"), 1);
  EXPECT_EQ(initial(kAdadelta, "rho"), 0.9);
  EXPECT_EQ(initial(kRmsprop, "alpha"), 0.99);
  EXPECT_EQ(initial(kAdamax, "lr"), 2e-3);
  EXPECT_EQ(initial(kRprop, "etaplus"), 1.2);
  EXPECT_EQ(initial(kRprop, "step_size_max"), 50);
}

TEST(SettingsTest, EveryDefaultIsInItsRange) {
  for (const Rule* rule : all_rules()) {
    Settings settings(*rule);
    for (const Setting& setting : rule->settings) settings.set(setting.name, setting.initial);
  }
}

TEST(SettingsTest, ARefusalNamesTheRangeAndKeepsTheValue) {
  Settings settings(kAdam);
  EXPECT_EQ(refusal(settings, "lr", -1, Status::kInvalidArgument),
            "adam: lr is -1, but must be a number of at least 0");
  EXPECT_EQ(refusal(settings, "beta1", 1, Status::kInvalidArgument), "adam: beta1 is 1, but must be in [0, 1)");
  EXPECT_EQ(refusal(settings, "amsgrad", 0.5, Status::kInvalidArgument), "adam: amsgrad is 0.5, but must be 0 or 1");
  refusal(settings, "lr", std::nan(""), Status::kInvalidArgument);
  refusal(settings, "lr", std::numeric_limits<double>::infinity(), Status::kInvalidArgument);
  EXPECT_EQ(settings[0], 1e-3);
}

TEST(SettingsTest, AnUnknownNameListsThoseThereAre) {
  Settings settings(kAdadelta);
  EXPECT_EQ(refusal(settings, "momentum", 0.9, Status::kNotFound),
            "adadelta has no setting \"momentum\"; it has lr, rho, eps, weight_decay, maximize");
  EXPECT_THROW(find_rule("adamx"), Error);
  EXPECT_STREQ(find_rule("adamax").name, "adamax");
}

TEST(NormTest, SquaresAreSummedOverEveryElement) {
  for (const int64_t count : {0, 1, 15, 16, 33, 1000}) {
    std::vector<double> values(static_cast<size_t>(count));
    std::vector<float> singles(values.size());
    double expected = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      singles[i] = static_cast<float>(i % 11) - 5.0f;
      values[i] = singles[i];
      expected += values[i] * values[i];
    }
    EXPECT_EQ(square_sum(testing::tensor_of(Dims{count}, values)).sum, expected);
    EXPECT_EQ(square_sum(testing::tensor_of(Dims{count}, singles)).sum, expected);
    EXPECT_EQ(square_sum(testing::with_gaps(testing::tensor_of(Dims{count}, values))).sum, expected);
  }
  EXPECT_EQ(square_sum(Tensor()).sum, 0);
}

TEST(NormTest, GradientsOfAllParametersAreSummedAlsoWhereSquaresOverflow) {
  const auto leaf_of = [] { return testing::tensor_of(Dims{2}, std::vector<double>{0, 0}); };
  const Tensors leaves = {leaf_of(), leaf_of(), leaf_of()};
  for (const Tensor& leaf : leaves) autograd::set_requires_grad(leaf, true);
  const LocalOptimizer local(find_rule("sgd"), leaves);
  const auto norm_of = [&](double scale) {
    const Gradients gradients{{{leaves[0], testing::tensor_of(Dims{2}, std::vector<double>{3 * scale, 0})},
                               {leaves[2], testing::tensor_of(Dims{2}, std::vector<double>{0, 4 * scale})}}};
    return square_sum(local, gradients).root();
  };
  EXPECT_DOUBLE_EQ(norm_of(1), 5);
  EXPECT_DOUBLE_EQ(norm_of(1e200), 5e200);
  EXPECT_DOUBLE_EQ(norm_of(2e153), 1e154);    // each square is finite, and so is their sum
  EXPECT_DOUBLE_EQ(norm_of(3e153), 1.5e154);  // their sum is not
}

TEST(NormTest, SquaresMayOverflow) {
  const auto of = [](std::vector<double> values) {
    return square_sum(testing::tensor_of(Dims{static_cast<int64_t>(values.size())}, values));
  };
  SquareSum sum = of({3e200, 0, 4e200});
  EXPECT_DOUBLE_EQ(sum.root(), 5e200);
  sum += of({12e200, 1});
  EXPECT_DOUBLE_EQ(sum.root(), 13e200);
  SquareSum several = of({1e154});  // each is finite
  several += of({1e154});
  EXPECT_DOUBLE_EQ(several.root(), std::sqrt(2) * 1e154);
  EXPECT_EQ(of({1e308, 1e308, 1e308, 1e308}).root(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(of({1e200, std::nan("")}).root()));
}

TEST(NormTest, OnlyANormAboveTheLimitIsScaled) {
  EXPECT_EQ(clip_factor(2, 3), 1);
  EXPECT_EQ(clip_factor(0, 0), 1);
  EXPECT_EQ(clip_factor(4, 1), 0.25);
  EXPECT_EQ(clip_factor(4, 0), 0);
  EXPECT_THROW(clip_factor(1, -1), Error);
  EXPECT_THROW(clip_factor(1, std::nan("")), Error);
  EXPECT_THROW(clip_factor(std::numeric_limits<double>::infinity(), 1), Error);
}

}  // namespace
}  // namespace distag::optim
