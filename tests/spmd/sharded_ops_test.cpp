// Ops on sharded tensors as members of a mesh run them, forward and backward, against the op on the whole: every op,
// over random specs.
#include <gtest/gtest.h>

#include <cstring>

#include "autograd/autograd.h"
#include "autograd/context.h"
#include "layout/spec_text.h"
#include "ops/samples.h"
#include "spmd/expected.h"
#include "spmd/joint_context.h"
#include "spmd/marking.h"
#include "spmd/mesh_group.h"
#include "spmd/sharding.h"
#include "spmd/simulated_mesh.h"
#include "spmd/tensors.h"
#include "support/tensors.h"
#include "unit/layout/meshes.h"

namespace distag::testing {
namespace {

using layout::Spec;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSpecs = 1;
#else
constexpr int kSpecs = 4;
#endif

// The result of a run on one member.
struct Got {
  Tensors outputs;
  Tensors gradients;
  std::vector<Spec> specs;
};

// Leaves of the sample's inputs, which are cut as the specs say.
Tensors make_leaves(Member& member, const Sample& sample, const std::vector<Spec>& specs) {
  const SimulatedMesh simulated(member.mesh());
  const uint32_t constant = ops::find_op(sample.op)->constant;
  Tensors leaves;
  for (size_t i = 0; i < sample.inputs.size(); ++i) {
    const Tensor& input = sample.inputs[i];
    if (!input) {
      leaves.emplace_back();
      continue;
    }
    const std::string text = print_spec(member.mesh(), specs[i]);
    Tensor leaf = input.clone();
    if (specs[i].partial() == 0) {
      spmd::mark_sharding(leaf, member.line, text, -1);
    } else {
      const Sharded cut = simulated.cut(input, specs[i]);
      leaf = spmd::from_local(member.line, cut.shards[static_cast<size_t>(member.position())].clone(), text,
                              input.shape(), std::nullopt);
    }
    if (is_floating(input.dtype()) && ((constant >> i) & 1) == 0) autograd::set_requires_grad(leaf, true);
    leaves.push_back(leaf);
  }
  return leaves;
}

Got run_sample(Member& member, const Sample& sample, const std::vector<Spec>& specs) {
  const Tensors leaves = make_leaves(member, sample, specs);
  const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
  const Tensors outputs = autograd::apply(*ops::find_op(sample.op), leaves, sample.attributes);
  Got got;
  BackwardOptions options;
  Tensors roots;  // without indices
  for (const Tensor& output : outputs) {
    got.specs.push_back(spmd::Sharding::of(output)->lying().spec);
    if (!is_floating(output.dtype())) continue;
    roots.push_back(output);
    Tensor seed = weights_like(Tensor::empty(output.dtype(), output.shape()));
    spmd::mark_sharding(seed, member.line, print_spec(member.mesh(), got.specs.back().dual()), -1);
    options.seeds.push_back(seed);
  }
  context->backward(roots, options);
  const auto gradients = context->gradients();
  for (const Tensor& leaf : leaves) {
    const Tensor* gradient = leaf ? gradients->find(leaf) : nullptr;
    got.gradients.push_back(gradient == nullptr ? Tensor() : spmd::gather(*gradient, -1));
    if (gradient == nullptr) continue;
    EXPECT_TRUE(places_alike(member.mesh(), spmd::Sharding::of(*gradient)->lying().spec,
                             spmd::Sharding::of(leaf)->lying().spec.dual()));
  }
  for (const Tensor& output : outputs) got.outputs.push_back(spmd::gather(output, -1));
  return got;
}

Tensor run_plain(const char* op, const Tensor& x, double value) {
  return ops::find_op(op)->forward(Tensors{x}, ops::make_attributes({{"value", value}}), nullptr).at(0);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && (a.count() == 0 || std::memcmp(a.data(), b.data(), a.byte_size()) == 0);
}

void check(const Sample& sample, const Expected& expected, const std::vector<Got>& all) {
  for (const Got& got : all) {
    ASSERT_EQ(got.outputs.size(), expected.outputs.size());
    for (size_t i = 0; i < expected.outputs.size(); ++i) {
      expect_close(got.outputs[i], expected.outputs[i]);
      EXPECT_TRUE(same_bits(got.outputs[i], all[0].outputs[i]));
    }
    for (size_t i = 0; i < expected.gradients.size(); ++i) {
      if (!sample.inputs[i] || !is_floating(sample.inputs[i].dtype()) || !expected.gradients[i]) continue;
      SCOPED_TRACE("gradient " + std::to_string(i));
      ASSERT_TRUE(got.gradients[i]);
      expect_close(got.gradients[i], expected.gradients[i]);
      EXPECT_TRUE(same_bits(got.gradients[i], all[0].gradients[i]));
    }
  }
}

void check_specs(MeshGroup& group, const Sample& sample, const Expected& expected, const std::vector<Spec>& specs) {
  const layout::MeshShape& mesh = group.program(0).shape();
  std::string title = sample.op + ":";
  for (size_t i = 0; i < specs.size(); ++i) {
    if (sample.inputs[i]) title += " " + describe(sample.inputs[i]) + " as " + print_spec(mesh, specs[i]);
  }
  SCOPED_TRACE(title);
  std::vector<Got> all(group.size());
  group.run([&](Member& member) { all[static_cast<size_t>(member.position())] = run_sample(member, sample, specs); });
  check(sample, expected, all);
}

void check_all_ops(const Dims& sizes, uint32_t seed) {
  MeshGroup group(sizes);
  Random random(seed);
  for (const Sample& sample : gradient_samples()) {
    const Expected expected = expected_of(sample);
    for (int k = 0; k < kSpecs; ++k) {
      std::vector<Spec> specs;
      const layout::MeshShape& mesh = group.program(0).shape();
      for (const Tensor& input : sample.inputs) {
        specs.push_back(input ? random_spec(mesh, input.rank(), is_floating(input.dtype()), random) : Spec());
      }
      check_specs(group, sample, expected, specs);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Members whose parts have other shapes save other views: either all of them gather a parameter again, or none.
TEST(ShardedOps, UnequalPartsAreGatheredAgainByAllOrNone) {
  MeshGroup group({2, 2});
  for (const Sample& sample : gradient_samples()) {
    const Expected expected = expected_of(sample);
    std::vector<Spec> specs;
    for (const Tensor& input : sample.inputs) {
      Spec spec(input ? input.rank() : 0);
      for (uint8_t axis = 0; axis < 2 && axis < spec.rank(); ++axis) spec.dim(axis) = {axis};
      specs.push_back(spec);
    }
    check_specs(group, sample, expected, specs);
    if (HasFailure()) return;
  }
}

// The op takes a part of a parameter that was gathered before: the gathered copy of backward lies as before.
TEST(ShardedOps, BackwardUsesThePartOfAParameterThatWasGathered) {
  MeshGroup group({2});
  for (const char* lies : {"(None, 'x')", "('x', None)"}) {
    for (const char* other : {"(None, 'x')", "('x', None)", "(None, None)"}) {
      for (const bool goes_on : {false, true}) {
        SCOPED_TRACE(std::string(lies) + " beside " + other + (goes_on ? ", cut again" : ""));
        group.run([&](Member& member) {
          const Tensor w = weights_like(Tensor::empty(Dtype::kFloat64, {4, 6}));
          const Tensor b = run_plain("add_scalar", w, 3);
          const Tensor expected_of_b = w.clone();
          const Tensor expected_of_w = b.clone();
          spmd::mark_sharding(w, member.line, lies, -1);
          spmd::mark_sharding(b, member.line, other, -1);
          autograd::set_requires_grad(w, true);
          autograd::set_requires_grad(b, true);
          Tensor gathered = spmd::redistribute(w, "(None, None)", {});
          if (goes_on) gathered = spmd::redistribute(gathered, "(None, 'x')", {});
          const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
          const Tensor y = autograd::apply(*ops::find_op("mul"), Tensors{gathered, b}, {}).at(0);
          const Tensor loss = autograd::apply(*ops::find_op("sum"), Tensors{y}, {}).at(0);
          context->backward({loss}, {});
          const auto gradients = context->gradients();
          EXPECT_TRUE(same_bits(spmd::gather(*gradients->find(b), -1), expected_of_b));
          EXPECT_TRUE(same_bits(spmd::gather(*gradients->find(w), -1), expected_of_w));
        });
      }
    }
  }
}

TEST(ShardedOps, EqualTheOpOnTheWholeOnTwo) { check_all_ops({2}, 3); }
TEST(ShardedOps, EqualTheOpOnTheWholeOnThree) { check_all_ops({3}, 5); }
TEST(ShardedOps, EqualTheOpOnTheWholeOnTwoByTwo) { check_all_ops({2, 2}, 7); }
TEST(ShardedOps, EqualTheOpOnTheWholeOnOneByThree) { check_all_ops({1, 3}, 9); }

}  // namespace
}  // namespace distag::testing
