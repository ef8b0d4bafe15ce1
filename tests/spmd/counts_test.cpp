// How many communications steps take, and how many bytes they bring: exactly as the rules say.
#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "spmd/joint_context.h"
#include "spmd/marking.h"
#include "spmd/mesh_group.h"
#include "spmd/programs.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

using ops::make_attributes;

// A leaf that requires grad; sharded if there is a member.
Tensor leaf(Member* member, const Dims& shape, int64_t seed, const char* spec) {
  Tensor tensor = numbers(shape, seed);
  if (member != nullptr) spmd::mark_sharding(tensor, member->line, spec, -1);
  autograd::set_requires_grad(tensor, true);
  return tensor;
}

MeshPolicy keeping() {
  MeshPolicy policy;
  policy.keep_gathered = true;
  return policy;
}

constexpr int64_t kBatch = 2;
constexpr int64_t kLength = 4;
constexpr int64_t kWidth = 8;
constexpr int64_t kHeads = 4;

// Attention and two linear layers, each after a layer_norm and with a residual. Heads and hidden units are cut.
struct Block {
  explicit Block(Member* member)
      : norm1(leaf(member, {kWidth}, 1, "(None,)")),
        norm2(leaf(member, {kWidth}, 2, "(None,)")),
        shift(leaf(member, {kWidth}, 3, "(None,)")),
        query(leaf(member, {kWidth, kWidth}, 4, "('x', None)")),
        key(leaf(member, {kWidth, kWidth}, 5, "('x', None)")),
        value(leaf(member, {kWidth, kWidth}, 6, "('x', None)")),
        merge(leaf(member, {kWidth, kWidth}, 7, "(None, 'x')")),
        up(leaf(member, {4 * kWidth, kWidth}, 8, "('x', None)")),
        down(leaf(member, {kWidth, 4 * kWidth}, 9, "(None, 'x')")),
        up_bias(leaf(member, {4 * kWidth}, 10, "('x',)")),
        down_bias(leaf(member, {kWidth}, 11, "(None,)")) {}

  Tensors parameters() const { return {norm1, norm2, shift, query, key, value, merge, up, down, up_bias, down_bias}; }

  static Tensor heads(const Tensor& x) {
    const Dims split{kBatch, kLength, kHeads, kWidth / kHeads};
    return apply("permute", {apply("reshape", {x}, make_attributes({{"shape", split}}))},
                 make_attributes({{"dims", Dims{0, 2, 1, 3}}}));
  }

  Tensor run(const Tensor& x) const {
    const Tensor n = apply("layer_norm", {x, norm1, shift});
    const Tensor q = heads(apply("linear", {n, query}));
    const Tensor k =
        apply("transpose", {heads(apply("linear", {n, key}))}, make_attributes({{"dim0", 2}, {"dim1", 3}}));
    const Tensor scores = apply("mul_scalar", {apply("matmul", {q, k})}, make_attributes({{"value", 0.7}}));
    const Tensor mixed = apply("matmul", {apply("softmax", {scores}), heads(apply("linear", {n, value}))});
    const Tensor together = apply("reshape", {apply("permute", {mixed}, make_attributes({{"dims", Dims{0, 2, 1, 3}}}))},
                                  make_attributes({{"shape", Dims{kBatch, kLength, kWidth}}}));
    const Tensor middle = apply("add", {x, apply("linear", {together, merge})});
    const Tensor hidden = apply("gelu", {apply("linear", {apply("layer_norm", {middle, norm2, shift}), up, up_bias})});
    return apply("add", {middle, apply("linear", {hidden, down, down_bias})});
  }

  Tensor norm1, norm2, shift, query, key, value, merge, up, down, up_bias, down_bias;
};

void expect_near(const Tensor& got, const Tensor& expected, double distance) {
  const auto left = values_of<double>(got);
  const auto right = values_of<double>(expected);
  ASSERT_EQ(left.size(), right.size());
  for (size_t i = 0; i < left.size(); ++i) ASSERT_NEAR(left[i], right[i], distance) << "element " << i;
}

TEST(Counts, TensorParallelBlockTakesTwoSumsEachWay) {
  const Block alone(nullptr);
  const Tensor alone_x = leaf(nullptr, {kBatch, kLength, kWidth}, 12, "");
  const auto alone_context = make_local_context();
  alone_context->backward({apply("mean", {apply("square", {alone.run(alone_x)})})}, {});

  MeshGroup group({2}, refusing());
  group.run([&](Member& member) {
    const Block block(&member);
    const Tensor x = leaf(&member, {kBatch, kLength, kWidth}, 12, "(None, None, None)");
    const Mesh& mesh = member.line.program->mesh();
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    const MeshStats before = mesh.stats();
    const Tensor loss = apply("mean", {apply("square", {block.run(x)})});
    const MeshStats forward = mesh.stats();
    EXPECT_EQ(forward.all_reduces - before.all_reduces, 2u);
    EXPECT_EQ(forward.bytes_sent - before.bytes_sent, 2u * kBatch * kLength * kWidth * 8u);
    context->backward({loss}, {});
    const MeshStats after = mesh.stats();
    EXPECT_EQ(after.all_reduces - forward.all_reduces, 2u);
    EXPECT_EQ(after.bytes_sent - forward.bytes_sent, 2u * kBatch * kLength * kWidth * 8u);
    EXPECT_EQ(after.all_gathers, 0u);
    EXPECT_EQ(after.reduce_scatters + after.all_to_alls + after.moves, 0u);
    const auto gradients = context->gradients();
    const auto expected = alone_context->gradients();
    const Tensors parameters = block.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      expect_near(spmd::gather(*gradients->find(parameters[i]), -1), *expected->find(alone.parameters()[i]), 1e-12);
    }
    expect_near(spmd::gather(*gradients->find(x), -1), *expected->find(alone_x), 1e-12);
  });
}

TEST(Counts, FullyShardedLayerTakesTwoGathersAndOneReduceScatter) {
  MeshGroup group({2}, refusing());
  group.run([](Member& member) {
    const Tensor weight = leaf(&member, {8, 6}, 1, "('x', None)");
    const Tensor x = apply("clone", {leaf(&member, {4, 6}, 2, "('x', None)")});  // no parameter
    const Mesh& mesh = member.line.program->mesh();
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    const MeshStats before = mesh.stats();
    const Tensor loss = apply("mean", {apply("linear", {x, weight})});
    const MeshStats forward = mesh.stats();
    EXPECT_EQ(forward.all_gathers - before.all_gathers, 1u);
    EXPECT_EQ(forward.bytes_received - before.bytes_received, 4u * 6u * 8u);
    context->backward({loss}, {});
    const MeshStats after = mesh.stats();
    EXPECT_EQ(after.all_gathers - forward.all_gathers, 1u);
    EXPECT_EQ(after.reduce_scatters - before.reduce_scatters, 1u);
    EXPECT_EQ(after.bytes_received - forward.bytes_received, 2u * 4u * 6u * 8u);
    EXPECT_EQ(after.all_reduces + after.all_to_alls + after.moves, 0u);
  });
}

TEST(Counts, GatheredParametersThatAreKeptAreGatheredOnce) {
  MeshGroup group({2}, keeping());
  group.run([](Member& member) {
    const Tensor weight = leaf(&member, {8, 6}, 1, "('x', None)");
    const Tensor x = apply("clone", {leaf(&member, {4, 6}, 2, "('x', None)")});
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("mean", {apply("linear", {x, weight})})}, {});
    EXPECT_EQ(member.line.program->mesh().stats().all_gathers, 1u);
    EXPECT_EQ(member.line.program->mesh().stats().reduce_scatters, 1u);
  });
}

TEST(Counts, TensorUsedThreeTimesIsSummedOnceEachWay) {
  MeshGroup group({3});
  group.run([](Member& member) {
    const Tensor weight = leaf(&member, {6}, 1, "(None,)");
    const Tensor x = leaf(&member, {6, 6}, 2, "('x', None)");
    const Mesh& mesh = member.line.program->mesh();
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    // Three uses of a tensor that is cut: each gives a part of a sum.
    Tensor sum = apply("mul", {x, weight});
    sum = apply("add", {sum, apply("mul", {apply("square", {x}), weight})});
    sum = apply("add", {sum, apply("mul", {apply("tanh", {x}), weight})});
    context->backward({apply("sum", {sum})}, {});
    EXPECT_EQ(mesh.stats().all_reduces, 1u);
    // A sum that two ops read is made once.
    const Tensor partial = apply("sum", {x}, make_attributes({{"dims", Dims{0}}}));
    EXPECT_STREQ(spmd::Sharding::of(partial)->spec_text(), "(None,) sum('x')");
    apply("exp", {partial});
    EXPECT_STREQ(spmd::Sharding::of(partial)->spec_text(), "(None,)");
    apply("tanh", {partial});
    EXPECT_EQ(mesh.stats().all_reduces, 2u);
  });
}

// Sizes differ between members that are cut apart by y; sums go over x.
TEST(Counts, GradientsOfLeavesTravelInBuckets) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{200}, uint64_t{1} << 20}) {
    MeshPolicy policy;
    policy.bucket_bytes = bytes;
    MeshGroup group({2, 2}, policy);
    group.run([](Member& member) {
      const Tensor x = numbers({4, 5}, 1);
      spmd::mark_sharding(x, member.line, "('x', None)", -1);
      const Tensors leaves{leaf(&member, {5, 5}, 2, "(None, 'y')"), leaf(&member, {5}, 3, "('y',)"),
                           leaf(&member, {3, 5}, 4, "('y', None)"), leaf(&member, {3}, 5, "(None,)")};
      const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
      const Tensor hidden = apply("tanh", {apply("add", {apply("matmul", {x, leaves[0]}), leaves[1]})});
      const Tensor loss = apply("sum", {apply("add", {apply("linear", {hidden, leaves[2]}), leaves[3]})});
      context->backward({loss}, {});
      const auto alone = make_local_context();
      Tensors plain{numbers({5, 5}, 2), numbers({5}, 3), numbers({3, 5}, 4), numbers({3}, 5)};
      for (const Tensor& each : plain) autograd::set_requires_grad(each, true);
      const Tensor same = apply("tanh", {apply("add", {apply("matmul", {numbers({4, 5}, 1), plain[0]}), plain[1]})});
      alone->backward({apply("sum", {apply("add", {apply("linear", {same, plain[2]}), plain[3]})})}, {});
      for (size_t i = 0; i < leaves.size(); ++i) {
        expect_near(spmd::gather(*context->gradients()->find(leaves[i]), -1), *alone->gradients()->find(plain[i]),
                    1e-12);
      }
    });
  }
}

TEST(Counts, DataParallelStepTakesOneSum) {
  MeshGroup group({3});
  group.run([](Member& member) {
    const Tensor x = numbers({4, 5}, 1);
    spmd::mark_sharding(x, member.line, "('x', None)", -1);
    const Tensor weight = leaf(&member, {3, 5}, 2, "(None, None)");
    const Tensor bias = leaf(&member, {3}, 3, "(None,)");
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("mean", {apply("linear", {x, weight, bias})})}, {});
    EXPECT_EQ(member.line.program->mesh().stats().all_reduces, 1u);
    EXPECT_EQ(member.line.program->mesh().stats().bytes_sent, 2u * (15u + 3u) * 8u);
  });
}

// All members know the number of rows of the whole; they do not know all weights, nor which rows are ignored.
TEST(Counts, TheMeanOfALossOfRowsSendsNothingUnlessRowsHaveWeights) {
  MeshGroup group({3});
  group.run([](Member& member) {
    const Mesh& mesh = member.line.program->mesh();
    const Tensor logits = leaf(&member, {5, 4}, 1, "('x', None)");
    const Tensor targets = tensor_of<int64_t>({5}, {3, 1, 0, 2, 1});
    const Tensor plain = leaf(nullptr, {5, 4}, 1, "");
    for (const char* op : {"cross_entropy", "nll_loss"}) {
      for (const bool is_ignoring : {false, true}) {
        const auto attributes = is_ignoring ? make_attributes({{"ignore_index", int64_t{1}}}) : ops::Attributes();
        const uint64_t before = mesh.stats().all_reduces;
        const Tensor loss = apply(op, {logits, targets}, attributes);
        EXPECT_EQ(mesh.stats().all_reduces - before, is_ignoring ? 1u : 0u) << op;
        EXPECT_EQ(print_spec(mesh.shape(), spmd::Sharding::of(loss)->lying().spec), "() sum('x')");
        const double alone = apply(op, {plain, targets}, attributes).item();
        EXPECT_NEAR(spmd::gather(loss, -1).item(), alone, 1e-14) << op;
        const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
        context->backward({loss}, {});
        const auto local = make_local_context();
        local->backward({apply(op, {plain, targets}, attributes)}, {});
        const auto expected = values_of<double>(*local->gradients()->find(plain));
        const auto got = values_of<double>(spmd::gather(*context->gradients()->find(logits), -1));
        for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-15) << op << i;
      }
      const Tensor weights = tensor_of<double>({4}, {1, 2, 3, 4});
      const uint64_t before = mesh.stats().all_reduces;
      const Tensor loss = apply(op, {logits, targets, weights});
      EXPECT_EQ(mesh.stats().all_reduces - before, 1u) << op;
      EXPECT_NEAR(spmd::gather(loss, -1).item(), apply(op, {plain, targets, weights}).item(), 1e-14) << op;
    }
  });
}

// The target would count as a row of the mean: all members get the error. If each has all rows, the target is ignored.
TEST(Counts, ATargetToIgnoreIsRefusedWhereRowsAreCutUnlessIgnoreIndexIsGiven) {
  MeshGroup group({2}, {}, 20 * kSecond);
  const Tensor targets = tensor_of<int64_t>({4}, {1, 0, -100, 2});
  const double alone = apply("cross_entropy", {numbers({4, 3}, 1), targets}).item();
  const auto errors = group.try_run([&](Member& member) {
    const Tensor logits = leaf(&member, {4, 3}, 1, "('x', None)");
    const Tensor given = apply("cross_entropy", {logits, targets}, make_attributes({{"ignore_index", int64_t{-100}}}));
    EXPECT_NEAR(spmd::gather(given, -1).item(), alone, 1e-14);
    const Tensor repeated = leaf(&member, {4, 3}, 1, "(None, None)");
    EXPECT_NEAR(spmd::gather(apply("cross_entropy", {repeated, targets}), -1).item(), alone, 1e-14);
    spmd::gather(apply("cross_entropy", {logits, targets}), -1);
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status(), Status::kInvalidArgument) << error->message();
    EXPECT_NE(error->message().find("target -100"), std::string::npos) << error->message();
  }
}

// The program sees each call at once, also a call that sends nothing.
TEST(Counts, EachCallCountsAsSoonAsItReturns) {
  MeshGroup group({1});
  group.run([](Member& member) {
    const Mesh& mesh = member.line.program->mesh();
    for (uint64_t i = 1; i <= 200; ++i) {
      const uint64_t before = mesh.stats().calls;
      leaf(&member, {4, 2}, 1, "('x', None)");
      ASSERT_EQ(mesh.stats().calls - before, 1u);
    }
  });
}

TEST(Counts, AHiddenMoveThatIsRefusedIsNoMove) {
  MeshGroup group({2}, refusing());
  group.run([](Member& member) {
    const Tensor a = apply("clone", {leaf(&member, {4, 4}, 1, "('x', None)")});
    const Tensor b = apply("clone", {leaf(&member, {4, 4}, 2, "(None, 'x')")});
    EXPECT_THROW(apply("mul", {a, b}), Error);
    EXPECT_EQ(member.line.program->mesh().stats().hidden_moves, 0u);
  });
}

// An axis of one member cuts nothing, and results name it as the inputs do.
TEST(Counts, AnAxisOfOneMemberStaysInTheSpec) {
  MeshGroup group({1, 2});
  group.run([](Member& member) {
    const Tensor x = leaf(&member, {4, 6}, 1, "('x', 'y')");
    const auto spec_of = [&member](const Tensor& y) {
      return print_spec(member.mesh(), spmd::Sharding::of(y)->lying().spec);
    };
    const Tensor dropped = apply("dropout", {x}, make_attributes({{"p", 0.5}, {"seed", int64_t{7}}}));
    EXPECT_EQ(spec_of(dropped), "('x', 'y')");
    EXPECT_EQ(spec_of(apply("tanh", {x})), "('x', 'y')");
    EXPECT_EQ(spec_of(apply("add", {x, x})), "('x', 'y')");
    EXPECT_EQ(spec_of(apply("transpose", {x}, make_attributes({{"dim0", int64_t{0}}, {"dim1", int64_t{1}}}))),
              "('y', 'x')");
    const auto alone =
        values_of<double>(apply("dropout", {numbers({4, 6}, 1)}, make_attributes({{"p", 0.5}, {"seed", int64_t{7}}})));
    EXPECT_EQ(values_of<double>(spmd::gather(dropped, -1)), alone);
    const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
    context->backward({apply("sum", {apply("square", {apply("tanh", {x})})})}, {});
    EXPECT_EQ(spec_of(*context->gradients()->find(x)), "('x', 'y')");
  });
}

TEST(Counts, PlacementsAreWorkedOutOnce) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const Tensor weight = leaf(&member, {8, 6}, 1, "('x', None)");
    const Tensor x = leaf(&member, {4, 6}, 2, "('x', None)");
    apply("linear", {x, weight});
    const uint64_t misses = member.line.program->mesh().stats().plan_misses;
    EXPECT_EQ(misses, 1u);
    for (int i = 0; i < 10; ++i) apply("linear", {x, weight});
    EXPECT_EQ(member.line.program->mesh().stats().plan_misses, misses);
    apply("linear", {weight, x});
    EXPECT_EQ(member.line.program->mesh().stats().plan_misses, misses + 1);
  });
}

}  // namespace
}  // namespace distag::testing
