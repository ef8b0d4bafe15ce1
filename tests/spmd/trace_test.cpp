// Ops on shapes: their results and failures are those of the ops on elements.
#include "spmd/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>

#include "base/error.h"
#include "layout/rule.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/samples.h"
#include "spmd/traced_program.h"
#include "support/expect.h"
#include "support/tensors.h"
#include "tensor/deferred.h"
#include "tensor/shape_only.h"

namespace distag::testing {
namespace {

using spmd::make_shape_only;
using spmd::TracedProgram;

constexpr Dtype kDtypes[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kInt64, Dtype::kBool};

// Samples of ops without a gradient.
std::vector<Sample> more_samples() {
  std::vector<Sample> samples;
  const Tensor x = tensor_of<double>({2, 3}, {1, 0, 1, 1, 0, 0});
  for (const char* op : {"eq", "ne", "gt", "ge", "lt", "le", "logical_and", "logical_or"}) {
    samples.push_back({op, {x, tensor_of<double>({3}, {1, 0, 1})}, {}});
    samples.push_back({op, {x, Tensor::scalar(Dtype::kFloat64, 1)}, {}});
  }
  for (const char* op : {"logical_not", "detach", "any", "all"}) samples.push_back({op, {x}, {}});
  samples.push_back({"argmax", {x}, ops::make_attributes({{"dim", 1}})});
  samples.push_back({"cast", {x}, ops::make_attributes({{"dtype", Dtype::kInt64}})});
  samples.push_back(
      {"one_hot", {tensor_of<int64_t>({2}, {1, 0})}, ops::make_attributes({{"num_classes", int64_t{4}}})});
  for (const char* op : {"add", "sub", "mul", "div", "maximum", "minimum", "pow"}) {
    samples.push_back({op, {x, Tensor::scalar(Dtype::kFloat64, 1)}, {}});
    samples.push_back({op, {Tensor::scalar(Dtype::kFloat64, 1), x}, {}});
  }
  samples.push_back({"mul_scalar", {x}, ops::make_attributes({{"value", 0.5}})});
  samples.push_back({"clamp", {x}, ops::make_attributes({{"min", -1}, {"max", 1e19}})});
  samples.push_back({"pad", {x}, ops::make_attributes({{"after", int64_t{2}}, {"value", 0.5}})});
  return samples;
}

std::vector<Sample> all_samples() {
  std::vector<Sample> samples = gradient_samples();
  for (Sample& sample : more_samples()) samples.push_back(std::move(sample));
  return samples;
}

// A failure, or the dtypes and shapes of the results.
std::string outcome(const ops::Op& op, const Tensors& inputs, const ops::Attributes& attributes) {
  try {
    std::string text;
    for (const Tensor& output : autograd::apply(op, inputs, attributes)) text += describe(output) + " ";
    return text;
  } catch (const Error& error) {
    return status_name(error.status());
  }
}

Tensors shapes_of(const Tensors& inputs) {
  Tensors shapes;
  for (const Tensor& input : inputs) {
    shapes.push_back(input ? make_shape_only(input.dtype(), input.shape()) : Tensor());
  }
  return shapes;
}

TEST(OpsOnShapes, GiveWhatOpsOnElementsGiveForAllDtypes) {
  int refused = 0;
  for (const Sample& sample : all_samples()) {
    const ops::Op& op = *ops::find_op(sample.op);
    const size_t varied = std::min<size_t>(sample.inputs.size(), 3);
    for (size_t choice = 0; choice < (size_t{1} << (2 * varied)); ++choice) {
      Tensors inputs = sample.inputs;
      for (size_t i = 0; i < varied; ++i) {
        if (inputs[i]) inputs[i] = ops::as_dtype(inputs[i], kDtypes[(choice >> (2 * i)) & 3]);
      }
      const std::string expected = outcome(op, inputs, sample.attributes);
      // Bools are refused when they are multiplied, which does not happen if there is nothing to multiply.
      const bool is_empty_product = (sample.op == "matmul" || sample.op == "linear") && expected.starts_with("bool");
      if (is_empty_product) continue;
      refused += expected.find('[') == std::string::npos ? 1 : 0;
      std::string text = sample.op;
      for (const Tensor& input : inputs) text += " " + describe(input);
      EXPECT_EQ(outcome(op, shapes_of(inputs), sample.attributes), expected) << text;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(OpsOnShapes, CoverAllOpsThatHaveARule) {
  std::set<std::string> tried;
  for (const Sample& sample : all_samples()) tried.insert(sample.op);
  for (const ops::Op* op : ops::builtins()) {
    EXPECT_EQ(tried.count(op->name), layout::has_rule(op->name) ? 1u : 0u) << op->name;
  }
}

// If an input is a shape, the other inputs may be tensors, which are not read.
TEST(OpsOnShapes, TakeOtherTensorsAlong) {
  for (const Sample& sample : all_samples()) {
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      if (!sample.inputs[i]) continue;
      Tensors inputs = sample.inputs;
      inputs[i] = make_shape_only(inputs[i].dtype(), inputs[i].shape());
      const Tensors outputs = autograd::apply(*ops::find_op(sample.op), inputs, sample.attributes);
      for (const Tensor& output : outputs) EXPECT_TRUE(is_shape_only(output)) << sample.op;
    }
  }
}

TEST(OpsOnShapes, RequireGradWhereOpsDo) {
  const Tensor x = make_shape_only(Dtype::kFloat32, {2, 3});
  const ops::Op& relu = *ops::find_op("relu");
  EXPECT_FALSE(autograd::requires_grad(autograd::apply(relu, Tensors{x}, {})[0]));
  autograd::set_requires_grad(x, true);
  const Tensor y = autograd::apply(relu, Tensors{x}, {})[0];
  EXPECT_TRUE(autograd::requires_grad(y) && autograd::has_history(y));
  EXPECT_FALSE(autograd::requires_grad(autograd::apply(relu, Tensors{x}, {}, false)[0]));
  EXPECT_FALSE(autograd::requires_grad(autograd::apply(*ops::find_op("detach"), Tensors{y}, {})[0]));
  EXPECT_FALSE(autograd::requires_grad(autograd::apply(*ops::find_op("argmax"), Tensors{y}, {})[0]));
  EXPECT_EQ(status_of([&] { autograd::set_requires_grad(y, false); }), Status::kInvalidState);
}

TEST(OpsOnShapes, RefuseElementsNamingTheCure) {
  const Tensor x = make_shape_only(Dtype::kFloat32, {2, 3});
  const std::string expected =
      "INVALID_STATE: float32[2, 3] is a shape without elements (DISTAG_INIT_SHAPE), which ops note and plans are made "
      "from: to compute, to send or to go backward, make the tensors with another init";
  EXPECT_EQ(failure_of([&] { x.data(); }), expected);
  EXPECT_EQ(failure_of([&] { x.hold(); }).substr(0, 13), "INVALID_STATE");
  EXPECT_EQ(failure_of([&] { x.clone(); }), expected);
  EXPECT_EQ(failure_of([&] { x.snapshot(); }), expected);
  EXPECT_EQ(failure_of([&] { shard_of(x); }), expected);
  EXPECT_EQ(failure_of([&] { autograd::apply(*ops::find_op("nonzero"), Tensors{x}, {}); }),
            "UNSUPPORTED: nonzero: the shape of its result depends on elements, and a shape has none");
  EXPECT_EQ(status_of([] { make_shape_only(Dtype::kFloat32, {INT64_MAX / 2, 4}); }), Status::kInvalidArgument);
}

class Nothing final : public Initialiser {
 public:
  void fill(const Dims&, const Dims&, std::byte*) const override {}
};

// Costs of moves are sums over inputs, so the bound is for all tensors of a program, made or deferred.
TEST(OpsOnShapes, TakeNoTensorBeyondTheBound) {
  constexpr int64_t kMost = int64_t{1} << 53;
  EXPECT_NO_THROW(make_shape_only(Dtype::kFloat32, {kMost}));
  EXPECT_EQ(
      failure_of([] {
        make_shape_only(Dtype::kFloat32, {0, kMost + 1});
      }),
      "INVALID_ARGUMENT: float32[0, 9007199254740993] is too large for a plan: its sizes, with 1 for 0, make more "
      "than 2^55 bytes");
  const Tensor x = make_shape_only(Dtype::kFloat32, {1});
  const auto add = [&](int64_t size) {
    const Tensor large = Tensor::deferred(Dtype::kFloat32, {size}, std::make_shared<Nothing>());
    return failure_of([&] { autograd::apply(*ops::find_op("add"), Tensors{x, large}, {}); });
  };
  EXPECT_EQ(add(kMost), "no failure");
  EXPECT_EQ(
      add(kMost + 1),
      "INVALID_ARGUMENT: add: input 1: float32[9007199254740993] is too large for a plan: its sizes, with 1 for 0, "
      "make more than 2^55 bytes");
}

Tensor chain(const Tensor& x, size_t length) {
  Tensor y = x;
  for (size_t i = 0; i < length; ++i) y = autograd::apply(*ops::find_op("relu"), Tensors{y}, {})[0];
  return y;
}

// Ops of a program are freed without recursion.
TEST(TracedPrograms, OfAnyLengthAreFreedAndHashedAlike) {
  const Tensor x = make_shape_only(Dtype::kFloat32, {2, 3});
  const Tensor long_one = chain(x, 100000);
  EXPECT_EQ(TracedProgram(Tensors{long_one}).steps().size(), 100000u);
  const TracedProgram program(Tensors{chain(x, 10)});
  const Tensor other = make_shape_only(Dtype::kFloat32, {2, 3});
  EXPECT_EQ(program.hash(), TracedProgram(Tensors{chain(other, 10)}).hash());
  EXPECT_NE(program.hash(), TracedProgram(Tensors{chain(other, 11)}).hash());
  EXPECT_NE(program.hash(), TracedProgram(Tensors{chain(make_shape_only(Dtype::kFloat32, {3, 2}), 10)}).hash());
  EXPECT_NE(program.hash(), TracedProgram(Tensors{chain(make_shape_only(Dtype::kFloat64, {2, 3}), 10)}).hash());
}

uint64_t hash_of(const char* op, const Tensors& inputs, const ops::Attributes& attributes, bool record = true) {
  return TracedProgram(autograd::apply(*ops::find_op(op), inputs, attributes, record)).hash();
}

// A number as int or float, a default given or left out, null, an input left out at the end: the same ops.
TEST(TracedPrograms, HaveTheHashOfTheProgramHoweverItIsSaid) {
  const Tensor x = make_shape_only(Dtype::kFloat32, {4, 4, 4, 4});
  const Value null;
  const struct {
    const char* op;
    std::vector<ops::Attributes> same;
    std::vector<ops::Attributes> others;
  } cases[] = {
      {"mul_scalar",
       {ops::make_attributes({{"value", 2}}), ops::make_attributes({{"value", 2.0}})},
       {ops::make_attributes({{"value", 2.5}})}},
      {"sum",
       {{},
        ops::make_attributes({{"dims", Dims{}}}),
        ops::make_attributes({{"keepdim", false}, {"dims", null}}),
        ops::make_attributes({{"keepdim", null}})},
       {ops::make_attributes({{"keepdim", true}}), ops::make_attributes({{"dims", Dims{0}}})}},
      {"cast",
       {ops::make_attributes({{"dtype", Dtype::kFloat64}}), ops::make_attributes({{"dtype", "float64"}})},
       {ops::make_attributes({{"dtype", "float32"}})}},
      {"max_pool2d",
       {ops::make_attributes({{"kernel", Dims{2, 2}}}),
        ops::make_attributes({{"kernel", Dims{2, 2}}, {"stride", Dims{2, 2}}}),
        ops::make_attributes({{"kernel", Dims{2, 2}}, {"padding", Dims{0, 0}}})},
       {ops::make_attributes({{"kernel", Dims{2, 2}}, {"stride", Dims{1, 2}}}),
        ops::make_attributes({{"kernel", Dims{2, 1}}})}},
      {"clamp",
       {ops::make_attributes({{"max", 1}}), ops::make_attributes({{"max", 1.0}, {"min", -HUGE_VAL}})},
       {ops::make_attributes({{"min", 1.0}}), ops::make_attributes({{"max", 1}, {"min", 0}})}},
      {"leaky_relu",
       {{}, ops::make_attributes({{"negative_slope", 0.01}})},
       {ops::make_attributes({{"negative_slope", 0.02}})}},
      {"mean", {{}, ops::make_attributes({{"keepdim", false}})}, {ops::make_attributes({{"keepdim", true}})}},
      {"softmax", {{}, ops::make_attributes({{"dim", -1}})}, {ops::make_attributes({{"dim", 0}})}},
      {"slice", {{}, ops::make_attributes({{"stop", INT64_MAX}})}, {ops::make_attributes({{"stop", int64_t{3}}})}}};
  for (const auto& each : cases) {
    const uint64_t hash = hash_of(each.op, {x}, each.same[0]);
    for (size_t i = 0; i < each.same.size(); ++i) EXPECT_EQ(hash_of(each.op, {x}, each.same[i]), hash) << each.op << i;
    for (size_t i = 0; i < each.others.size(); ++i) EXPECT_NE(hash_of(each.op, {x}, each.others[i]), hash) << each.op;
  }
  const Tensor weight = make_shape_only(Dtype::kFloat32, {4, 4}), bias = make_shape_only(Dtype::kFloat32, {4});
  EXPECT_EQ(hash_of("linear", {x, weight, {}}, {}), hash_of("linear", {x, weight}, {}));
  EXPECT_NE(hash_of("linear", {x, weight, bias}, {}), hash_of("linear", {x, weight}, {}));
  EXPECT_NE(hash_of("layer_norm", {x, bias, {}}, {}), hash_of("layer_norm", {x, {}, bias}, {}));
  EXPECT_EQ(hash_of("mse_loss", {x, x}, {}),
            hash_of("mse_loss", {x, x}, ops::make_attributes({{"reduction", "mean"}})));
  EXPECT_NE(hash_of("mse_loss", {x, x}, {}), hash_of("mse_loss", {x, x}, ops::make_attributes({{"reduction", "sum"}})));
  autograd::set_requires_grad(x, true);
  EXPECT_NE(hash_of("relu", {x}, {}, true), hash_of("relu", {x}, {}, false));
}

// A step that no root needs is no part of the program; leaves are in the order of their first use.
TEST(TracedPrograms, AreWhatTheRootsNeed) {
  const Tensor a = make_shape_only(Dtype::kFloat32, {4});
  const Tensor b = tensor_of<float>({4}, {1, 2, 3, 4});
  const auto apply = [](const char* op, const Tensors& inputs, const ops::Attributes& attributes = {}) {
    return autograd::apply(*ops::find_op(op), inputs, attributes);
  };
  const Tensor sum = apply("add", {b, a})[0];
  apply("mul", {a, sum});
  const Tensors parts = apply("split", {sum}, ops::make_attributes({{"sizes", Dims{1, 3}}}));
  const Tensor root = apply("mul", {parts[1], parts[1]})[0];
  const TracedProgram program(Tensors{root, sum});
  ASSERT_EQ(program.steps().size(), 3u);
  ASSERT_EQ(program.leaves().size(), 2u);
  EXPECT_EQ(program.leaves()[0].id(), b.id());
  EXPECT_EQ(program.steps()[0].inputs, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(program.steps()[1].inputs, (std::vector<size_t>{2}));
  EXPECT_EQ(program.steps()[2].inputs, (std::vector<size_t>{4, 4}));
  EXPECT_EQ(program.items()[4].shape, (Dims{3}));
  EXPECT_NE(program.hash(), TracedProgram(Tensors{root}).hash());
  EXPECT_EQ(status_of([&] { TracedProgram(Tensors{b}); }), Status::kInvalidArgument);
  EXPECT_EQ(status_of([&] { TracedProgram(Tensors{a}); }), Status::kInvalidArgument);
}

}  // namespace
}  // namespace distag::testing
