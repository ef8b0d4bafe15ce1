#include <gtest/gtest.h>

#include <thread>

#include "unit/autograd/graph.h"

namespace distag::testing {
namespace {

using namespace autograd;

using Numbers = std::vector<double>;

TEST(LocalContextTest, ADiamondAddsTheGradientsOfBothSides) {
  auto context = make_local_context();
  Tensor x = leaf({2, 3});
  Tensor y = apply("mul", {x, x});
  Tensor loss = apply("sum", {apply("add", {y, apply("mul", {y, x})})});  // x^2 + x^3
  context->backward({loss}, {});
  EXPECT_EQ(gradient(*context, x), (Numbers{2 * 2 + 3 * 4, 2 * 3 + 3 * 9}));
}

// Bit for bit the sum of both gradients, as two tensors of these values have them, each of which has its own.
TEST(LocalContextTest, ASquareHasTheGradientsOfBothItsFactors) {
  auto context = make_local_context();
  Tensor x = leaf({0.1, -1.7, 3e-300}), other = autograd::detach(x), seed = leaf({0.3, 1.1, 7});
  set_requires_grad(other, true);
  context->backward({apply("sum", {apply("mul", {apply("mul", {x, other}), seed})})}, {});
  const Numbers first = gradient(*context, x), second = gradient(*context, other);
  auto squares = make_local_context();
  BackwardOptions retaining;
  retaining.retain_graph = true;
  const Tensor y = apply("mul", {x, x});
  squares->backward({apply("sum", {apply("mul", {y, seed})})}, retaining);
  EXPECT_EQ(first, second);
  EXPECT_EQ(gradient(*squares, x), (Numbers{first[0] + second[0], first[1] + second[1], first[2] + second[2]}));
  EXPECT_EQ(first[1], -1.7 * 1.1);
  squares->backward({apply("sum", {y})}, {});
  EXPECT_EQ(gradient(*squares, x)[0], first[0] + second[0] + (0.1 + 0.1));
}

// Large enough that the product is added in the pass that makes it: rounded twice all the same, and what else goes by
// the same gradient stays as it is.
TEST(LocalContextTest, AProductIsAddedToWhatHasComeWithTheBitsOfTwoSteps) {
  constexpr size_t kCount = 20'000;
  Numbers x_values(kCount), w_values(kCount), v_values(kCount), u_values(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const auto n = static_cast<double>(i + 1);
    x_values[i] = 1 / n, w_values[i] = n / 7, v_values[i] = 3 / (n + 0.1), u_values[i] = n / 11;
  }
  Tensor x = leaf(x_values), w = leaf(w_values), v = leaf(v_values), u = leaf(u_values);
  const Tensor product = apply("mul", {x, w});
  // In both orders: the sum waits at x for the product, and the product for the sum.
  const Tensor near = apply("mul", {apply("add", {product, x}), v});
  const Tensor far = apply("mul", {apply("add", {x, w}), u});
  const Tensor loss = apply("sum", {apply("add", {near, far})});
  auto context = make_local_context();
  BackwardOptions retaining;
  retaining.retain_graph = true;
  context->backward({loss}, retaining);
  const Numbers dw = gradient(*context, w), dv = gradient(*context, v), dx = gradient(*context, x);
  for (size_t i = 0; i < kCount; ++i) {
    volatile const double by_w = v_values[i] * w_values[i], by_x = v_values[i] * x_values[i];
    volatile const double xw = x_values[i] * w_values[i];
    ASSERT_EQ(dw[i], by_x + u_values[i]) << i;
    ASSERT_EQ(dv[i], xw + x_values[i]) << i;
    ASSERT_NEAR(dx[i], v_values[i] + by_w + u_values[i], 1e-9 * dx[i]) << i;
  }
  auto again = make_local_context();
  again->backward({loss}, {});
  EXPECT_EQ(gradient(*again, x), dx);
  EXPECT_EQ(gradient(*again, w), dw);
  auto alone = make_local_context();
  alone->backward({apply("sum", {apply("mul", {apply("add", {apply("mul", {x, w}), x}), v})})}, {});
  const Numbers only = gradient(*alone, x);
  for (size_t i = 0; i < kCount; ++i) {
    volatile const double by_w = v_values[i] * w_values[i];
    ASSERT_EQ(only[i], v_values[i] + by_w) << i;
  }
}

TEST(LocalContextTest, AProductOfAnotherShapeIsAddedAsWell) {
  constexpr size_t kCount = 10'000;
  Tensor x = leaf(Numbers(kCount, 3)), scalar = leaf({5}), seed = leaf(Numbers(kCount, 2));
  const Tensor once = apply("mul", {x, scalar});
  auto context = make_local_context();
  context->backward({apply("sum", {apply("mul", {apply("add", {apply("add", {once, scalar}), x}), seed})})}, {});
  EXPECT_EQ(gradient(*context, x), Numbers(kCount, 2 * 5 + 2));
  EXPECT_EQ(gradient(*context, scalar), Numbers{(2 * 3 + 2) * kCount});
}

TEST(LocalContextTest, AGraphKeepsALeafButNotItsValues) {
  Tensor x = leaf({1, 2});
  const Tensor loss = apply("sum", {x.hold()});
  EXPECT_TRUE(x.owns_buffer());
}

TEST(LocalContextTest, ALeafThatNoLongerRequiresGradHasNoHooks) {
  auto context = make_local_context();
  Tensor x = leaf({1, 2});
  const uint64_t hook = add_hook(x, [](const Tensor& gradient) { return apply("neg", {gradient}); });
  set_requires_grad(x, false);
  EXPECT_EQ(gradient_edge(x).node, nullptr);
  EXPECT_EQ(error_of([&] { add_hook(x, {}); }).status(), Status::kInvalidState);
  set_requires_grad(x, true);
  EXPECT_EQ(error_of([&] { remove_hook(x, hook); }).status(), Status::kNotFound);
  context->backward({apply("sum", {x})}, {});
  EXPECT_EQ(gradient(*context, x), (Numbers{1, 1}));
}

TEST(LocalContextTest, WhatAHookWritesToItsGradientShowsNowhereElse) {
  auto context = make_local_context();
  Tensor x = leaf({1, 2});
  Tensor y = apply("add", {x, x});
  add_hook(y, [](const Tensor& gradient) {
    Tensor lent = gradient;
    ops::add_scaled(lent, gradient, 7);
    return Tensor();
  });
  const Tensor z = apply("mul", {y, autograd::detach(leaf({3, 4}))});
  context->backward({apply("sum", {z})}, {});
  EXPECT_EQ(gradient(*context, x), (Numbers{6, 8}));
}

// An operation that is recorded from a tensor with hooks finds their node without holding it, while a graph that held
// it ends.
TEST(LocalContextTest, AGraphThatEndsLeavesTheHooksOfAnotherWhole) {
  Tensor x = leaf({1});
  add_hook(x, [](const Tensor&) { return Tensor(); });
  const std::jthread ending([x](const std::stop_token& stop) {
    while (!stop.stop_requested()) apply("sum", {x});
  });
  int lost = 0;
  for (int i = 0; i < 20000; ++i) {
    const Tensor loss = apply("sum", {x});
    auto context = make_local_context();
    context->backward({loss}, {});
    lost += gradient(*context, x) != Numbers{1};
  }
  EXPECT_EQ(lost, 0);
}

TEST(LocalContextTest, GradientsOfSeveralPassesAddUp) {
  auto context = make_local_context();
  Tensor x = leaf({1, 2});
  EXPECT_TRUE(context->gradients()->entries.empty());
  for (int pass = 1; pass <= 3; ++pass) {
    context->backward({apply("sum", {apply("mul", {x, x})})}, {});
    EXPECT_EQ(gradient(*context, x), (Numbers{2.0 * pass, 4.0 * pass}));
  }
}

TEST(LocalContextTest, ASnapshotOfGradientsDoesNotChangeWithLaterPasses) {
  auto context = make_local_context();
  Tensor x = leaf({1});
  context->backward({apply("sum", {x})}, {});
  auto before = context->gradients();
  context->backward({apply("sum", {x})}, {});
  EXPECT_EQ(values(*before->find(x)), Numbers{1});
  EXPECT_EQ(gradient(*context, x), Numbers{2});
}

TEST(LocalContextTest, TheSameRootTwiceCountsTwiceAndSeedsScale) {
  auto context = make_local_context();
  Tensor x = leaf({1, 2});
  Tensor y = apply("mul", {x, x});
  Tensor loss = apply("sum", {y});
  Tensor seed = Tensor::empty(Dtype::kFloat64, {2});
  seed.mutable_data_as<double>()[0] = 10;
  seed.mutable_data_as<double>()[1] = 100;
  BackwardOptions options;
  options.seeds = {Tensor(), Tensor(), seed};
  context->backward({loss, loss, y}, options);
  EXPECT_EQ(gradient(*context, x), (Numbers{2 * 2 + 2 * 10, 4 * 2 + 4 * 100}));
}

TEST(LocalContextTest, AGradientIsItsOwnWhateverHappensToTheSeed) {
  auto context = make_local_context();
  Tensor x = leaf({1, 2});
  Tensor y = apply("add", {x, leaf({0, 0})});
  Tensor seed = Tensor::empty(Dtype::kFloat64, {2});
  seed.mutable_data_as<double>()[0] = seed.mutable_data_as<double>()[1] = 5;
  BackwardOptions options;
  options.seeds = {seed};
  context->backward({y}, options);
  seed.mutable_data_as<double>()[0] = 77;
  EXPECT_EQ(gradient(*context, x), (Numbers{5, 5}));
  EXPECT_EQ(values(seed), (Numbers{77, 5}));
}

TEST(LocalContextTest, TwoLeavesWithTheSameGradientDoNotShareIt) {
  auto context = make_local_context();
  Tensor a = leaf({1}), b = leaf({1});
  context->backward({apply("sum", {apply("add", {a, b})})}, {});
  auto all = context->gradients();
  Tensor of_a = *all->find(a);
  *of_a.mutable_data_as<double>() = 9;
  EXPECT_EQ(gradient(*context, b), Numbers{1});
}

TEST(LocalContextTest, ASecondPassNeedsRetainGraph) {
  auto context = make_local_context();
  Tensor x = leaf({3});
  Tensor loss = apply("sum", {apply("mul", {x, x})});
  BackwardOptions retain;
  retain.retain_graph = true;
  context->backward({loss}, retain);
  context->backward({loss}, {});
  EXPECT_EQ(gradient(*context, x), Numbers{12});
  Error error = error_of([&] { context->backward({loss}, {}); });
  EXPECT_EQ(error.status(), Status::kGraphFreed);
  EXPECT_NE(error.message().find("\"sum\""), std::string::npos) << error.message();
  EXPECT_EQ(gradient(*context, x), Numbers{12});
}

TEST(LocalContextTest, OnlyReachedLeavesHaveAnEntryInTheOrderOfTheirIds) {
  auto context = make_local_context();
  Tensor a = leaf({1}), b = leaf({2}), c = leaf({3});
  context->backward({apply("sum", {apply("mul", {c, a})})}, {});
  auto all = context->gradients();
  ASSERT_EQ(all->entries.size(), 2u);
  EXPECT_EQ(all->entries[0].leaf.id(), a.id());
  EXPECT_EQ(all->entries[1].leaf.id(), c.id());
  EXPECT_EQ(all->find(b), nullptr);
}

TEST(LocalContextTest, RootsAreCheckedInTheDocumentedOrder) {
  auto context = make_local_context();
  auto backward = [&](Tensors roots, Tensors seeds) {
    BackwardOptions options;
    options.seeds = std::move(seeds);
    return error_of([&] { context->backward(roots, options); });
  };
  Tensor x = leaf({1, 2});
  Tensor y = apply("mul", {x, x});
  EXPECT_NE(backward({}, {}).message().find("no roots"), std::string::npos);
  EXPECT_NE(backward({detach(x)}, {}).message().find("needs no gradient"), std::string::npos);
  EXPECT_NE(backward({x}, {}).message().find("no history"), std::string::npos);
  EXPECT_NE(backward({y}, {}).message().find("needs a seed"), std::string::npos);
  EXPECT_NE(backward({y}, {Tensor::scalar(Dtype::kFloat64, 1)}).message().find("float64[2]"), std::string::npos);
  EXPECT_NE(backward({y}, {Tensor::empty(Dtype::kFloat32, {2})}).message().find("float32[2]"), std::string::npos);
  EXPECT_EQ(backward({y}, {}).status(), Status::kInvalidArgument);
}

TEST(LocalContextTest, AFailingBackwardLeavesNoGradientsAndNamesTheOp) {
  auto context = make_local_context();
  Tensor x = leaf({1});
  CustomOp boom;
  boom.name = "boom";
  boom.forward = [](std::span<const Tensor> inputs, size_t) { return Tensors{inputs[0].clone()}; };
  boom.backward = [](Tensors, size_t) -> Tensors { throw Error(static_cast<Status>(1042), "host says no"); };
  Tensor y = apply_custom(boom, std::vector<Tensor>{x}, 1)[0];
  Error error = error_of([&] { context->backward({apply("sum", {apply("add", {y, leaf({1})})})}, {}); });
  EXPECT_EQ(static_cast<int>(error.status()), 1042);
  EXPECT_EQ(error.message(), "backward of \"boom\": host says no");
  EXPECT_TRUE(context->gradients()->entries.empty());
  EXPECT_EQ(context->info().pass_count, 0u);
}

TEST(LocalContextTest, ACustomOpGetsUndefinedGradientsOfUnusedOutputsAndMayLeaveSomeOut) {
  auto context = make_local_context();
  Tensor a = leaf({1}), b = leaf({2});
  CustomOp split;
  split.name = "split";
  split.forward = [](std::span<const Tensor> inputs, size_t) {
    EXPECT_FALSE(requires_grad(inputs[0]));
    return Tensors{inputs[0].clone(), inputs[1].clone()};
  };
  bool second_was_undefined = false;
  split.backward = [&](Tensors gradients, size_t count) {
    second_was_undefined = !gradients[1];
    Tensors result(count);
    result[0] = gradients[0];
    return result;
  };
  Tensors outputs = apply_custom(split, std::vector<Tensor>{a, b}, 2);
  context->backward({apply("sum", {outputs[0]})}, {});
  EXPECT_TRUE(second_was_undefined);
  EXPECT_EQ(gradient(*context, a), Numbers{1});
  EXPECT_EQ(context->gradients()->find(b), nullptr);
}

TEST(LocalContextTest, ACustomGradientOfAWrongShapeIsRefused) {
  auto context = make_local_context();
  CustomOp wrong;
  wrong.name = "wrong";
  wrong.forward = [](std::span<const Tensor> inputs, size_t) { return Tensors{inputs[0].clone()}; };
  wrong.backward = [](Tensors, size_t) { return Tensors{Tensor::empty(Dtype::kFloat64, {7})}; };
  Tensor y = apply_custom(wrong, std::vector<Tensor>{leaf({1})}, 1)[0];
  Error error = error_of([&] { context->backward({apply("sum", {y})}, {}); });
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_NE(error.message().find("float64[7]"), std::string::npos) << error.message();
}

TEST(LocalContextTest, AChainOf100000OpsNeitherRecursesNorLeaks) {
  CountedOp counted;
  {
    auto context = make_local_context();
    Tensor x = leaf({1});
    Tensor y = counted(x);
    for (int i = 0; i < 100000; ++i) y = i % 1000 == 0 ? counted(y) : apply("neg", {y});
    BackwardOptions retain;
    retain.retain_graph = true;
    context->backward({y}, retain);
    EXPECT_EQ(gradient(*context, x), Numbers{(100000 - 100) % 2 == 0 ? 1.0 : -1.0});
    EXPECT_EQ(counted.alive(), 101);
  }
  EXPECT_EQ(counted.alive(), 0);
}

TEST(LocalContextTest, SavedDataGoesWithThePassAndTheGraphWithItsTensors) {
  CountedOp counted;
  auto context = make_local_context();
  Tensor x = leaf({1});
  Tensor loss = apply("sum", {counted(x)});
  EXPECT_EQ(counted.alive(), 1);
  context->backward({loss}, {});
  EXPECT_EQ(counted.alive(), 0);
  Tensor other = counted(x);
  EXPECT_EQ(counted.alive(), 1);
  other = Tensor();
  EXPECT_EQ(counted.alive(), 0);
}

TEST(LocalContextTest, GradientsOutliveTheHandlesOfTheirLeaves) {
  auto context = make_local_context();
  {
    Tensor x = leaf({4});
    context->backward({apply("sum", {apply("mul", {x, x})})}, {});
  }
  auto all = context->gradients();
  ASSERT_EQ(all->entries.size(), 1u);
  EXPECT_EQ(values(all->entries[0].gradient), Numbers{8});
}

TEST(LocalContextTest, PassesOfSeveralThreadsAddUp) {
  auto context = make_local_context();
  Tensor x = leaf({1});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) context->backward({apply("sum", {apply("mul", {x, x})})}, {});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gradient(*context, x), Numbers{400});
}

TEST(LocalContextTest, ThereIsNoThreadForBackwardAsync) {
  Tensor x = leaf({1});
  EXPECT_EQ(error_of([&] { make_local_context()->backward_async({apply("sum", {x})}, {}); }).status(),
            Status::kUnsupported);
}

TEST(HistoryTest, RequiresGradIsForFloatingLeavesOnly) {
  Tensor whole = Tensor::empty(Dtype::kInt64, {1});
  EXPECT_EQ(error_of([&] { set_requires_grad(whole, true); }).status(), Status::kInvalidArgument);
  Tensor x = leaf({1});
  Tensor y = apply("mul", {x, x});
  EXPECT_TRUE(requires_grad(y));
  EXPECT_EQ(error_of([&] { set_requires_grad(y, false); }).status(), Status::kInvalidState);
  EXPECT_EQ(error_of([&] { set_history(y, gradient_edge(x)); }).status(), Status::kInvalidState);
  set_requires_grad(x, false);
  EXPECT_FALSE(requires_grad(apply("mul", {x, x})));
  EXPECT_FALSE(requires_grad(detach(y)));
}

TEST(HistoryTest, RecordingCanBeSwitchedOff) {
  Tensor x = leaf({1});
  const Tensors inputs{x, x};
  EXPECT_FALSE(requires_grad(autograd::apply(*ops::find_op("mul"), inputs, {}, false)[0]));
}

}  // namespace
}  // namespace distag::testing
