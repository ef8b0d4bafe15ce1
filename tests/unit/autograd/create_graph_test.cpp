// Passes whose gradients have a history: what they retain, add up, refuse, and leave when they fail.
#include <gtest/gtest.h>

#include "unit/autograd/graph.h"

namespace distag::testing {
namespace {

using namespace autograd;

using Numbers = std::vector<double>;

BackwardOptions creating() {
  BackwardOptions options;
  options.create_graph = true;
  return options;
}

Tensor gradient_tensor(Context& context, const Tensor& leaf) { return *context.gradients()->find(leaf); }

Tensor cube(const Tensor& x) { return apply("mul", {apply("mul", {x, x}), x}); }

TEST(CreateGraphTest, GivesGradientsWithAHistory) {
  const Tensor x = leaf({2, -1});
  auto first = make_local_context(), second = make_local_context(), third = make_local_context();
  first->backward({apply("sum", {cube(x)})}, creating());
  const Tensor slope = gradient_tensor(*first, x);
  EXPECT_EQ(values(slope), (Numbers{12, 3}));
  EXPECT_TRUE(has_history(slope));
  second->backward({apply("sum", {slope})}, creating());
  const Tensor curvature = gradient_tensor(*second, x);
  EXPECT_EQ(values(curvature), (Numbers{12, -6}));
  third->backward({apply("sum", {curvature})}, {});
  EXPECT_EQ(gradient(*third, x), (Numbers{6, 6}));
}

TEST(CreateGraphTest, AConstantGradientHasNone) {
  const Tensor x = leaf({2, 3});
  auto context = make_local_context();
  context->backward({apply("sum", {x})}, creating());
  EXPECT_EQ(gradient(*context, x), (Numbers{1, 1}));
  EXPECT_FALSE(requires_grad(gradient_tensor(*context, x)));
}

TEST(CreateGraphTest, RetainsTheGraph) {
  const Tensor x = leaf({2});
  auto context = make_local_context();
  const Tensor loss = apply("sum", {cube(x)});
  context->backward({loss}, creating());
  context->backward({loss}, {});
  EXPECT_EQ(gradient(*context, x), (Numbers{24}));
}

TEST(CreateGraphTest, AddsToGradientsOfEarlierPasses) {
  const Tensor x = leaf({2});
  auto context = make_local_context(), second = make_local_context();
  context->backward({apply("sum", {cube(x)})}, {});
  context->backward({apply("sum", {cube(x)})}, creating());
  context->backward({apply("sum", {cube(x)})}, creating());
  const Tensor sum = gradient_tensor(*context, x);
  EXPECT_EQ(values(sum), (Numbers{36}));
  second->backward({apply("sum", {sum})}, {});
  EXPECT_EQ(gradient(*second, x), (Numbers{24}));  // of the two that have a history
}

TEST(CreateGraphTest, ScaledGradientsKeepTheirHistory) {
  const Tensor x = leaf({2});
  auto context = make_local_context(), second = make_local_context();
  context->backward({apply("sum", {cube(x)})}, creating());
  const uint64_t id = x.id();
  context->scale_gradients({&id, 1}, 0.5, 1);
  EXPECT_EQ(gradient(*context, x), (Numbers{6}));
  second->backward({apply("sum", {gradient_tensor(*context, x)})}, {});
  EXPECT_EQ(gradient(*second, x), (Numbers{6}));
}

TEST(CreateGraphTest, LeadsThroughSeeds) {
  const Tensor x = leaf({2, 3}), seed = leaf({5, 7});
  auto first = make_local_context(), second = make_local_context();
  BackwardOptions options = creating();
  options.seeds = {seed};
  first->backward({apply("mul", {x, x})}, options);
  EXPECT_EQ(gradient(*first, x), (Numbers{20, 42}));
  second->backward({apply("sum", {gradient_tensor(*first, x)})}, {});
  EXPECT_EQ(gradient(*second, seed), (Numbers{4, 6}));
  EXPECT_EQ(gradient(*second, x), (Numbers{10, 14}));
}

// The derivative is that at the values which ops took.
TEST(CreateGraphTest, WritesBetweenPassesDoNotShow) {
  Tensor x = leaf({2});
  auto first = make_local_context(), second = make_local_context();
  const Tensor loss = apply("sum", {cube(x)});
  ops::assign(x, Tensor::scalar(Dtype::kFloat64, 100));
  first->backward({loss}, creating());
  const Tensor slope = gradient_tensor(*first, x);
  ops::assign(x, Tensor::scalar(Dtype::kFloat64, 1000));
  second->backward({apply("sum", {slope})}, {});
  EXPECT_EQ(values(slope), (Numbers{12}));
  EXPECT_EQ(gradient(*second, x), (Numbers{12}));
}

TEST(CreateGraphTest, ASecondPassFreesWhatItRanThrough) {
  const Tensor x = leaf({2});
  auto first = make_local_context(), second = make_local_context();
  first->backward({apply("sum", {cube(x)})}, creating());
  const Tensor root = apply("sum", {gradient_tensor(*first, x)});
  second->backward({root}, {});
  EXPECT_EQ(error_of([&] { second->backward({root}, {}); }).status(), Status::kGraphFreed);
  EXPECT_EQ(gradient(*second, x), (Numbers{12}));
}

TEST(CreateGraphTest, AFreedForwardIsNamed) {
  const Tensor x = leaf({2});
  auto first = make_local_context(), second = make_local_context();
  const Tensor loss = apply("sum", {apply("exp", {cube(x)})});
  first->backward({loss}, creating());
  const Tensor slope = gradient_tensor(*first, x);
  first->backward({loss}, {});
  EXPECT_EQ(error_of([&] { second->backward({apply("sum", {slope})}, {}); }).status(), Status::kGraphFreed);
  EXPECT_TRUE(second->gradients()->entries.empty());
}

TEST(CreateGraphTest, ACustomOpIsRefusedByName) {
  const Tensor x = leaf({2});
  CountedOp counted;
  auto context = make_local_context();
  const Tensor loss = apply("sum", {counted(cube(x))});
  const Error error = error_of([&] { context->backward({loss}, creating()); });
  EXPECT_EQ(error.status(), Status::kUnsupported);
  EXPECT_NE(error.message().find("\"counted\""), std::string::npos) << error.message();
  EXPECT_TRUE(context->gradients()->entries.empty());
  context->backward({loss}, {});
  EXPECT_EQ(gradient(*context, x), (Numbers{12}));
}

TEST(CreateGraphTest, ALatePassLeavesNothingAndCanBeRepeated) {
  const Tensor x = leaf({2});
  auto context = make_local_context();
  const Tensor loss = apply("sum", {cube(x)});
  BackwardOptions options = creating();
  options.timeout = 0;
  EXPECT_EQ(error_of([&] { context->backward({loss}, options); }).status(), Status::kDeadline);
  EXPECT_TRUE(context->gradients()->entries.empty());
  context->backward({loss}, creating());
  EXPECT_EQ(gradient(*context, x), (Numbers{12}));
}

TEST(CreateGraphTest, HooksSeeAHistoryAndTheirResultCounts) {
  const Tensor x = leaf({2});
  bool had_history = false;
  add_hook(x, [&had_history](const Tensor& g) {
    had_history = has_history(g);
    return apply("mul", {g, g});
  });
  auto first = make_local_context(), second = make_local_context();
  first->backward({apply("sum", {apply("mul", {x, x})})}, creating());
  EXPECT_TRUE(had_history);
  const Tensor squared = gradient_tensor(*first, x);  // (2 x)^2
  EXPECT_EQ(values(squared), (Numbers{16}));
  second->backward({apply("sum", {squared})}, {});
  EXPECT_EQ(gradient(*second, x), (Numbers{256}));  // (8 x)^2: the hook sees this gradient as well
}

// exp leads its second gradient through its output, whose hook sees that too: as one whole.
TEST(CreateGraphTest, AHookOfASavedOutputSeesTheWholeGradient) {
  const Tensor x = leaf({0});
  const Tensor y = apply("exp", {x});
  Numbers seen;
  add_hook(y, [&seen](const Tensor& g) {
    seen.push_back(g.item());
    return Tensor();
  });
  auto first = make_local_context(), second = make_local_context();
  first->backward({apply("sum", {apply("mul", {y, y})})}, creating());  // exp(2 x): slope 2, curvature 4
  second->backward({apply("sum", {gradient_tensor(*first, x)})}, {});
  EXPECT_EQ(gradient(*second, x), (Numbers{4}));
  EXPECT_EQ(seen, (Numbers{2, 4}));
}

TEST(CreateGraphTest, AFailingHookLeavesNothing) {
  const Tensor x = leaf({2});
  add_hook(x, [](const Tensor&) -> Tensor { fail(Status::kInvalidArgument, "not this one"); });
  auto context = make_local_context();
  EXPECT_EQ(error_of([&] { context->backward({apply("sum", {cube(x)})}, creating()); }).status(),
            Status::kInvalidArgument);
  EXPECT_TRUE(context->gradients()->entries.empty());
}

// A Hessian times a vector, of sum(x^3 y): rows 6 x y and 3 x^2, 3 x^2 and 0.
TEST(CreateGraphTest, AHessianTimesAVector) {
  const Tensor x = leaf({2}), y = leaf({5});
  auto first = make_local_context(), second = make_local_context();
  first->backward({apply("sum", {apply("mul", {cube(x), y})})}, creating());
  const Tensor product = apply("add", {apply("mul", {gradient_tensor(*first, x), detach(leaf({3}))}),
                                       apply("mul", {gradient_tensor(*first, y), detach(leaf({7}))})});
  second->backward({apply("sum", {product})}, {});
  EXPECT_EQ(gradient(*second, x), (Numbers{60 * 3 + 12 * 7}));
  EXPECT_EQ(gradient(*second, y), (Numbers{12 * 3}));
}

TEST(CreateGraphTest, DroppedGradientsDropTheirGraph) {
  const Tensor x = leaf({2});
  std::weak_ptr<Node> node;
  {
    auto first = make_local_context();
    first->backward({apply("sum", {cube(x)})}, creating());
    node = gradient_edge(gradient_tensor(*first, x)).node;
    EXPECT_FALSE(node.expired());
  }
  EXPECT_TRUE(node.expired());
}

}  // namespace
}  // namespace distag::testing
