#include "optim/local_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/op.h"
#include "optim/rules.h"
#include "support/expect.h"
#include "support/tensors.h"
#include "tensor/access.h"

namespace distag::optim {
namespace {

using testing::status_of;
using testing::tensor_of;
using testing::values_of;

Tensor vector_of(const std::vector<double>& values) {
  return tensor_of(Dims{static_cast<int64_t>(values.size())}, values);
}

void step(LocalOptimizer& optimizer, const Tensors& gradients) { optimizer.step(gradients); }

TEST(LocalOptimizerTest, AParameterWithoutGradientKeepsItsValuesAndItsStepCount) {
  Tensor a = vector_of({1, 2});
  Tensor b = vector_of({3});
  LocalOptimizer optimizer(kAdam, {a, b});
  step(optimizer, {vector_of({1, 1}), Tensor()});
  step(optimizer, {vector_of({1, 1}), vector_of({1})});
  const Value saved = optimizer.save();
  EXPECT_EQ(saved.as_list()[0].find("step")->as_int64(), 2);
  EXPECT_EQ(saved.as_list()[1].find("step")->as_int64(), 1);
  EXPECT_NEAR(values_of<double>(b)[0], 3 - 1e-3, 1e-9);
}

TEST(LocalOptimizerTest, WhoHoldsTheValuesOfBeforeKeepsThem) {
  Tensor parameter = vector_of({1, 2});
  Tensor before = parameter.snapshot();
  Tensor twin = autograd::detach(parameter);
  LocalOptimizer optimizer(kSgd, {parameter});
  optimizer.settings().set("lr", 0.5);
  step(optimizer, {vector_of({2, 2})});
  EXPECT_EQ(values_of<double>(parameter), (std::vector<double>{0, 1}));
  EXPECT_EQ(values_of<double>(twin), (std::vector<double>{0, 1}));
  EXPECT_EQ(values_of<double>(before), (std::vector<double>{1, 2}));
}

TEST(LocalOptimizerTest, MovesInPlaceWhenNobodyElseHoldsTheMemory) {
  Tensor parameter = vector_of({1, 2});
  const std::byte* memory = parameter.data();
  LocalOptimizer optimizer(kAdam, {parameter});
  step(optimizer, {vector_of({1, 1})});
  EXPECT_EQ(parameter.data(), memory);
}

// A rule that looks, while it moves a parameter, whether anybody could read one of them.
const Tensors* watched = nullptr;
int moves = 0;
const Rule kWatching{.name = "watching",
                     .settings = {},
                     .slots = {},
                     .needed_slots = [](const Settings&) { return 0u; },
                     .initial_of_slot = nullptr,
                     .check = nullptr,
                     .update =
                         [](const Update&) {
                           ++moves;
                           for (Tensor parameter : *watched) EXPECT_FALSE(try_hold({&parameter, 1}));
                         }};

TEST(LocalOptimizerTest, NobodyReadsAParameterBeforeAllHaveMoved) {
  Tensors parameters{vector_of({1, 2}), vector_of({3, 4}), vector_of({5})};
  watched = &parameters;
  LocalOptimizer optimizer(kWatching, parameters);
  step(optimizer, {vector_of({1, 1}), vector_of({1, 1}), vector_of({1})});
  EXPECT_EQ(moves, 3);
  EXPECT_TRUE(try_hold(parameters));
}

TEST(LocalOptimizerTest, AGradientThatSharesTheParametersMemoryIsReadAsItWas) {
  Tensor parameter = vector_of({4, 8});
  LocalOptimizer optimizer(kSgd, {parameter});
  optimizer.settings().set("lr", 0.25);
  step(optimizer, {parameter.snapshot()});
  EXPECT_EQ(values_of<double>(parameter), (std::vector<double>{3, 6}));
}

TEST(LocalOptimizerTest, OverlappingViewsAreMovedOneAfterTheOther) {
  Tensor whole = vector_of({0, 0, 0, 0});
  Tensor even = whole.view(Dims{2}, Dims{2}, 0);
  Tensor head = whole.view(Dims{3}, Dims{1}, 0);
  LocalOptimizer optimizer(kSgd, {even, head});
  optimizer.settings().set("lr", 1.0);
  step(optimizer, {vector_of({-1, -1}), vector_of({-10, -10, -10})});
  EXPECT_EQ(values_of<double>(whole), (std::vector<double>{11, 10, 11, 0}));
}

TEST(LocalOptimizerTest, AScalarAndAnEmptyParameterAreParametersToo) {
  Tensor scalar = Tensor::scalar(Dtype::kFloat64, 1);
  Tensor empty = Tensor::empty(Dtype::kFloat32, Dims{0, 3});
  LocalOptimizer optimizer(kSgd, {scalar, empty});
  optimizer.settings().set("lr", 1.0);
  step(optimizer, {Tensor::scalar(Dtype::kFloat64, 3), Tensor::empty(Dtype::kFloat32, Dims{0, 3})});
  EXPECT_EQ(scalar.item(), -2);
}

TEST(LocalOptimizerTest, ManyElementsMoveAsFewDo) {
  for (const Rule* rule : all_rules()) {
    SCOPED_TRACE(rule->name);
    for (const int64_t count : {1, 7, 64, 1003}) {
      std::vector<double> values(static_cast<size_t>(count));
      std::vector<double> slopes(values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<double>(i));
        slopes[i] = std::cos(3.0 * static_cast<double>(i));
      }
      Tensor many = vector_of(values);
      Tensor one = vector_of({values.back()});
      LocalOptimizer of_many(*rule, {many});
      LocalOptimizer of_one(*rule, {one});
      for (int i = 0; i < 3; ++i) {
        step(of_many, {vector_of(slopes)});
        step(of_one, {vector_of({slopes.back()})});
      }
      EXPECT_EQ(values_of<double>(many).back(), values_of<double>(one)[0]) << count;
    }
  }
}

// As many elements as there are blocks of 64 and a rest, with a gradient at few of them.
TEST(LocalOptimizerTest, SgdMovesNothingThatHasNoGradientAndEverythingThatHas) {
  const double infinity = std::numeric_limits<double>::infinity();
  constexpr size_t kCount = 64 * 4 + 7;
  std::vector<double> values(kCount, 3);
  values[1] = -0.0;
  values[2] = infinity;
  values[70] = -infinity;
  std::vector<double> gradient(kCount, 0);
  std::vector<double> expected = values;
  for (const size_t at : {size_t{0}, size_t{100}, size_t{255}, size_t{256}, kCount - 1}) {
    gradient[at] = 2;
    expected[at] = 2;
  }
  gradient[101] = -0.0;
  Tensor parameter = vector_of(values);
  LocalOptimizer optimizer(kSgd, {parameter});
  optimizer.settings().set("lr", 0.5);
  step(optimizer, {vector_of(gradient)});
  EXPECT_EQ(values_of<double>(parameter), expected);
  EXPECT_TRUE(std::signbit(values_of<double>(parameter)[1]));
}

TEST(LocalOptimizerTest, EveryRuleMaximizesWhenAsked) {
  for (const Rule* rule : all_rules()) {
    Tensor down = vector_of({1});
    Tensor up = vector_of({1});
    LocalOptimizer minimizer(*rule, {down});
    LocalOptimizer maximizer(*rule, {up});
    maximizer.settings().set("maximize", 1);
    if (rule == &kAdamw) {
      minimizer.settings().set("weight_decay", 0);
      maximizer.settings().set("weight_decay", 0);
    }
    step(minimizer, {vector_of({2})});
    step(maximizer, {vector_of({2})});
    EXPECT_LT(values_of<double>(down)[0], 1) << rule->name;
    EXPECT_NEAR(values_of<double>(up)[0] + values_of<double>(down)[0], 2, 1e-15) << rule->name;
  }
}

TEST(LocalOptimizerTest, ASettingCountsFromTheNextStepOn) {
  Tensor parameter = vector_of({10});
  LocalOptimizer optimizer(kSgd, {parameter});
  optimizer.settings().set("lr", 1);
  step(optimizer, {vector_of({1})});
  optimizer.settings().set("lr", 2);
  optimizer.settings().set("momentum", 0.5);  // the first buffer is the gradient
  step(optimizer, {vector_of({1})});
  EXPECT_EQ(values_of<double>(parameter)[0], 7);
  step(optimizer, {vector_of({1})});
  EXPECT_EQ(values_of<double>(parameter)[0], 4);
}

TEST(LocalOptimizerTest, EqualGradientsDoNotBreakACenteredRmsprop) {
  Tensor parameter = tensor_of<float>(Dims{1}, {1.0f});
  LocalOptimizer optimizer(kRmsprop, {parameter});
  optimizer.settings().set("centered", 1);
  for (int i = 0; i < 3000; ++i) step(optimizer, {tensor_of<float>(Dims{1}, {0.1f})});
  EXPECT_TRUE(std::isfinite(values_of<float>(parameter)[0]));
}

// ---- state ----

TEST(LocalOptimizerTest, ASavedStateGoesOnAsTheOriginalDoes) {
  for (const Rule* rule : all_rules()) {
    SCOPED_TRACE(rule->name);
    Tensor original = vector_of({1, -2});
    LocalOptimizer optimizer(*rule, {original});
    step(optimizer, {vector_of({0.5, 0.25})});
    const Value saved = optimizer.save();
    Tensor copy = original.clone();
    LocalOptimizer loaded(*rule, {copy});
    loaded.load(saved);
    step(optimizer, {vector_of({1, 3})});
    step(loaded, {vector_of({1, 3})});
    EXPECT_EQ(values_of<double>(copy), values_of<double>(original));
    // The steps after it did not change what was saved.
    Tensor again = vector_of({1, -2});
    LocalOptimizer reloaded(*rule, {again});
    reloaded.load(saved);
    EXPECT_EQ(reloaded.save().as_list()[0].find("step")->as_int64(), 1);
    for (const char* slot : rule->slots) {
      const Value* kept = saved.as_list()[0].find(slot);
      if (kept == nullptr) continue;
      EXPECT_EQ(values_of<double>(reloaded.save().as_list()[0].find(slot)->as_tensor()),
                values_of<double>(kept->as_tensor()));
    }
  }
}

TEST(LocalOptimizerTest, AStateThatDoesNotFitChangesNothing) {
  Tensor parameter = vector_of({1, 2});
  LocalOptimizer optimizer(kAdam, {parameter});
  step(optimizer, {vector_of({1, 1})});
  const auto item = [](Value::Map entries) { return Value::list({Value::map(std::move(entries))}); };
  const auto begun = [&item](Value::Map entries, int64_t steps = 1) {
    entries.emplace_back("step", Value(steps));
    return item(std::move(entries));
  };
  const std::vector<Value> wrong = {
      Value(),
      Value::list({}),
      item({}),
      item({{"step", Value(int64_t{-1})}}),
      item({{"step", Value(1.5)}}),
      begun({{"exp_avg", Value(vector_of({1, 2}))}, {"exp_avg_sq", Value(vector_of({1, 2}))}}, INT64_MAX),
      item({{"step", Value(int64_t{1})}, {"sum", Value(vector_of({1, 2}))}}),
      begun({{"exp_avg", Value(vector_of({1, 2}))}}),
      begun({{"exp_avg", Value(vector_of({1}))}, {"exp_avg_sq", Value(vector_of({1, 2}))}}),
      begun({{"exp_avg", Value(tensor_of<float>(Dims{2}, {1, 2}))}, {"exp_avg_sq", Value(vector_of({1, 2}))}}),
      begun({{"exp_avg", Value(1.0)}, {"exp_avg_sq", Value(vector_of({1, 2}))}})};
  for (const Value& value : wrong) {
    EXPECT_EQ(status_of([&] { optimizer.load(value); }), Status::kInvalidArgument);
  }
  EXPECT_EQ(optimizer.save().as_list()[0].find("step")->as_int64(), 1);
}

// ---- refusals ----

TEST(LocalOptimizerTest, RefusesWhatCannotBeAParameter) {
  Tensor leaf = vector_of({1});
  autograd::set_requires_grad(leaf, true);
  Tensor result = autograd::apply(*ops::find_op("neg"), {{leaf}}, {})[0];
  const Tensors wrong = {tensor_of<int64_t>(Dims{1}, {1}), result, leaf.view(Dims{3}, Dims{0}, 0)};
  for (const Tensor& tensor : wrong) {
    EXPECT_EQ(status_of([&] { LocalOptimizer(kSgd, {tensor}); }), Status::kInvalidArgument);
  }
  EXPECT_EQ(status_of([&] { LocalOptimizer(kSgd, {leaf, leaf}); }), Status::kInvalidArgument);
}

TEST(LocalOptimizerTest, MovesNothingWhenOneParameterCannotMove) {
  const double memory = 5;
  Tensor borrowed = Tensor::over(Buffer::borrow(&memory, sizeof memory, {}), Dtype::kFloat64, Dims{1}, Dims{1});
  Tensor parameter = vector_of({1});
  LocalOptimizer optimizer(kSgd, {parameter, borrowed});
  EXPECT_EQ(status_of([&] { step(optimizer, {vector_of({1}), vector_of({1})}); }), Status::kInvalidState);
  EXPECT_EQ(status_of([&] { step(optimizer, {vector_of({1}), vector_of({1, 2})}); }), Status::kInvalidArgument);
  EXPECT_EQ(values_of<double>(parameter)[0], 1);
  EXPECT_EQ(optimizer.save().as_list()[0].find("step")->as_int64(), 0);
  step(optimizer, {vector_of({1}), Tensor()});
  EXPECT_LT(values_of<double>(parameter)[0], 1);
}

TEST(LocalOptimizerTest, RefusesSettingsThatDoNotGoTogether) {
  Tensor parameter = vector_of({1});
  LocalOptimizer sgd(kSgd, {parameter});
  sgd.settings().set("nesterov", 1);
  EXPECT_EQ(status_of([&] { step(sgd, {vector_of({1})}); }), Status::kInvalidState);
  LocalOptimizer rprop(kRprop, {parameter});
  rprop.settings().set("step_size_min", 60);
  EXPECT_EQ(status_of([&] { step(rprop, {vector_of({1})}); }), Status::kInvalidState);
  EXPECT_EQ(values_of<double>(parameter)[0], 1);
}

}  // namespace
}  // namespace distag::optim
