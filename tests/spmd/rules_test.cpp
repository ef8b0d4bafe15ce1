// The rule of every op against the op on the whole, forward and backward, over random specs and all small meshes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "ops/samples.h"
#include "spmd/expected.h"
#include "spmd/simulated_mesh.h"
#include "support/tensors.h"
#include "unit/layout/meshes.h"

namespace distag::testing {
namespace {

using layout::MeshShape;
using layout::Spec;
using ops::make_attributes;

// Specs of each sample on each mesh; fewer under sanitizers, where everything takes ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSpecs = 2;
constexpr int kFewest = 1;  // on parts; so few specs leave it to chance
#else
constexpr int kSpecs = 20;
constexpr int kFewest = 2 * kSpecs;
#endif

// Ops whose result has a shape that no member knows beforehand.
const std::set<std::string> kWithoutRule = {"nonzero"};

// Ops without a gradient, and sums of dtypes that have none.
std::vector<Sample> other_samples() {
  std::vector<Sample> samples;
  const Tensor x = tensor_of<double>({3, 4}, {1, 5, 2, 5, 0, -1, 7, 7, 3, 3, 3, 2});
  const Tensor n = tensor_of<int64_t>({5, 3}, {1, -2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5});
  const Tensor flags = tensor_of<uint8_t>({5, 3}, {1, 0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 1, 1, 1});
  for (int64_t dim : {0, 1}) {
    samples.push_back({"argmax", {x}, make_attributes({{"dim", dim}})});
    samples.push_back({"sum", {n}, make_attributes({{"dims", Dims{dim}}})});
    samples.push_back({"sum", {flags}, make_attributes({{"dims", Dims{dim}}})});
    for (const char* op : {"any", "all"}) {
      samples.push_back({op, {n}, make_attributes({{"dims", Dims{dim}}, {"keepdim", dim == 0}})});
      samples.push_back({op, {flags}, make_attributes({{"dims", Dims{dim}}})});
    }
  }
  for (const char* op : {"any", "all"}) samples.push_back({op, {n}, {}});
  samples.push_back({"sum", {n}, {}});
  samples.push_back({"sum", {flags}, {}});
  samples.push_back({"eq", {x, x}, {}});
  samples.push_back({"eq", {n, tensor_of<int64_t>({3}, {1, 5, 3})}, {}});
  for (const char* op : {"gt", "ge", "lt", "le", "ne", "logical_and", "logical_or"}) {
    samples.push_back({op, {n, tensor_of<int64_t>({3}, {1, 0, 3})}, {}});
    samples.push_back({op, {flags, flags}, {}});
  }
  samples.push_back({"logical_not", {n}, {}});
  samples.push_back(
      {"one_hot", {tensor_of<int64_t>({3, 2}, {4, 0, 1, 1, 3, 0})}, make_attributes({{"num_classes", 5}})});
  samples.push_back({"topk", {n}, make_attributes({{"k", 2}, {"dim", 0}})});
  samples.push_back({"detach", {x}, {}});
  samples.push_back({"cast", {x}, make_attributes({{"dtype", Dtype::kInt64}})});
  samples.push_back({"cast", {flags}, make_attributes({{"dtype", Dtype::kFloat64}})});
  // Ignored rows count for nothing, in the mean as well.
  const auto ignoring = make_attributes({{"ignore_index", int64_t{-100}}});
  samples.push_back({"cross_entropy", {x, tensor_of<int64_t>({3}, {2, -100, 0})}, ignoring});
  samples.push_back({"cross_entropy", {x, tensor_of<int64_t>({3}, {-100, -100, -100})}, ignoring});
  // Shards that are cut in two, in three and not at all.
  samples.push_back({"reshape",
                     {tensor_of<double>({12, 8}, std::vector<double>(96, 1.5))},
                     make_attributes({{"shape", Dims{16, 6}}})});
  samples.push_back({"reshape",
                     {tensor_of<double>({12, 2}, std::vector<double>(24, 1.5))},
                     make_attributes({{"shape", Dims{4, 3, 2}}})});
  return samples;
}

std::string title(const Sample& sample, const MeshShape& mesh, const std::vector<Sharded>& inputs) {
  std::string text = sample.op + " on " + to_string(mesh.sizes()) + ":";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (sample.inputs[i]) text += " " + describe(sample.inputs[i]) + " as " + print_spec(mesh, inputs[i].spec);
  }
  for (const auto& [name, value] : sample.attributes) text += " " + name;
  return text;
}

// Ops that have run as another op than on the whole, and how often.
using OnParts = std::map<std::string, int>;

void check(const Sample& sample, const Expected& expected, const SimulatedMesh& mesh,
           const std::vector<Sharded>& inputs, const std::vector<bool>& are_parameters, OnParts& on_parts) {
  const Applied applied = mesh.apply(sample.op, inputs, sample.attributes, are_parameters);
  on_parts[sample.op] += applied.is_on_parts ? 1 : 0;
  ASSERT_EQ(applied.outputs.size(), expected.outputs.size());
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    SCOPED_TRACE("output as " + print_spec(mesh.shape(), applied.outputs[i].spec));
    expect_close(mesh.whole(applied.outputs[i]), expected.outputs[i]);
  }
  if (expected.gradients.empty()) return;
  std::vector<Sharded> seeds;
  for (const Sharded& output : applied.outputs) {
    seeds.push_back(mesh.cut(weights_like(expected.outputs[seeds.size()]), output.spec.dual()));
  }
  const std::vector<Sharded> gradients = applied.backward(seeds);
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    if (!sample.inputs[i] || !is_floating(sample.inputs[i].dtype()) || !expected.gradients[i]) continue;
    SCOPED_TRACE("gradient " + std::to_string(i) + " as " + print_spec(mesh.shape(), gradients[i].spec));
    ASSERT_EQ(gradients[i].shards.size(), static_cast<size_t>(mesh.shape().count()));
    expect_close(mesh.whole(gradients[i]), expected.gradients[i]);
    // The gradient goes on to the dual of the input's own spec.
    expect_close(mesh.whole(mesh.redistribute(gradients[i], inputs[i].spec.dual())), expected.gradients[i]);
  }
}

void check_over_specs(const Sample& sample, int count, Random& random, OnParts& on_parts) {
  const Expected expected = expected_of(sample);
  for (const Dims& sizes : mesh_sizes()) {
    const SimulatedMesh mesh(mesh_of(sizes));
    for (int i = 0; i < count; ++i) {
      std::vector<Sharded> inputs;
      std::vector<bool> are_parameters;
      for (const Tensor& input : sample.inputs) {
        are_parameters.push_back(below(random, 2) == 0);
        if (!input) {
          inputs.emplace_back();
          continue;
        }
        const bool may_be_partial = is_floating(input.dtype());
        inputs.push_back(mesh.cut(input, random_spec(mesh.shape(), input.rank(), may_be_partial, random)));
      }
      SCOPED_TRACE(title(sample, mesh.shape(), inputs));
      check(sample, expected, mesh, inputs, are_parameters, on_parts);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Each test takes a part of all ops: all samples of an op are in one part.
class RulesOfOpsTest : public ::testing::TestWithParam<size_t> {
 public:
  static constexpr size_t kParts = 4;

 protected:
  static bool is_its(const std::string& op) {
    const auto& ops = ops::builtins();
    const auto found = std::find_if(ops.begin(), ops.end(), [&op](const ops::Op* each) { return each->name == op; });
    return static_cast<size_t>(found - ops.begin()) % kParts == GetParam();
  }
};

TEST_P(RulesOfOpsTest, EqualTheOpOnTheWhole) {
  Random random(5 + static_cast<unsigned>(GetParam()));
  OnParts on_parts;
  for (const Sample& sample : gradient_samples()) {
    if (is_its(sample.op)) check_over_specs(sample, kSpecs, random, on_parts);
    if (HasFailure()) return;
  }
  for (const Sample& sample : other_samples()) {
    if (is_its(sample.op)) check_over_specs(sample, 4 * kSpecs, random, on_parts);
    if (HasFailure()) return;
  }
  for (const char* op : {"softmax", "log_softmax", "logsumexp", "max", "amin", "any", "all", "argmax", "var",
                         "layer_norm", "cross_entropy", "nll_loss", "embedding", "index_select", "gather", "dropout"}) {
    EXPECT_GE(on_parts[op], is_its(op) ? kFewest : 0) << op;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, RulesOfOpsTest, ::testing::Range(size_t{0}, RulesOfOpsTest::kParts));

// A setting near the largest number is refused before a side is computed with it.
TEST(Rules, RefuseSettingsOfConvolutionsThatOverflow) {
  const SimulatedMesh mesh(mesh_of({2}));
  const Spec whole = parse_spec(mesh.shape(), "('x', None, None, None)", 4);
  const Tensor image = tensor_of<double>({2, 1, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor weight = tensor_of<double>({1, 1, 1, 1}, {1});
  const std::vector<Sharded> inputs = {mesh.cut(image, whole), mesh.cut(weight, Spec(4))};
  for (const char* op : {"conv2d", "conv_transpose2d"}) {
    for (const char* name : {"stride", "padding", "dilation", "output_padding", "groups"}) {
      if (std::string(name) == "output_padding" && std::string(op) == "conv2d") continue;
      for (const int64_t value : {INT64_MAX, INT64_MAX / 2, int64_t{1} << 40, INT64_MIN}) {
        ops::Attributes attributes = std::string(name) == "groups" ? make_attributes({{name, value}})
                                                                   : make_attributes({{name, Dims{value, 1}}});
        try {
          mesh.apply(op, inputs, attributes);
          ADD_FAILURE() << op << " takes " << name << " " << value;
        } catch (const Error& error) {
          EXPECT_NE(error.message().find("do not fit"), std::string::npos) << error.message();
        }
      }
    }
  }
}

// This holds for a new op, too: it has a rule, or makes tensors of nothing, or refuses sharded tensors.
TEST(Rules, EveryOpHasOne) {
  std::set<std::string> sampled;
  for (const Sample& sample : gradient_samples()) sampled.insert(sample.op);
  for (const Sample& sample : other_samples()) sampled.insert(sample.op);
  for (const ops::Op* op : ops::builtins()) {
    if (kWithoutRule.count(op->name) == 1) continue;
    EXPECT_NE(layout::has_rule(op->name), layout::is_source(op->name)) << op->name;
    EXPECT_TRUE(layout::is_source(op->name) || sampled.count(op->name) == 1) << op->name << " has no sample";
  }
}

}  // namespace
}  // namespace distag::testing
