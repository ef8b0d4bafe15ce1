// Steps of programs whose specs were searched for: they send exactly what the plan says, and their results are those of
// one process.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "layout/spec_text.h"
#include "spmd/joint_context.h"
#include "spmd/mesh_group.h"
#include "spmd/plan.h"
#include "spmd/programs.h"
#include "spmd/random_program.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "spmd/trace.h"
#include "support/expect.h"
#include "support/tensors.h"
#include "unit/layout/meshes.h"

namespace distag::testing {
namespace {

using spmd::Plan;
using spmd::PlanSettings;
using Json = nlohmann::json;

Tensor elements_of(const RandomProgram::Leaf& leaf) {
  const int64_t seed = leaf.name.back() - '0';
  if (leaf.rows == 0) {
    const Tensor tensor = numbers(leaf.shape, seed);
    if (leaf.is_trained) autograd::set_requires_grad(tensor, true);
    return tensor;
  }
  Tensor tensor = Tensor::empty(Dtype::kInt64, leaf.shape);
  for (int64_t i = 0; i < tensor.count(); ++i) tensor.mutable_data_as<int64_t>()[i] = (i * 5 + seed) % leaf.rows;
  return tensor;
}

Tensor shape_of(const RandomProgram::Leaf& leaf) {
  const Tensor tensor = spmd::make_shape_only(leaf.rows == 0 ? Dtype::kFloat64 : Dtype::kInt64, leaf.shape);
  if (leaf.is_trained) autograd::set_requires_grad(tensor, true);
  return tensor;
}

constexpr size_t kMostLeaves = 6;

struct Made {
  std::vector<spmd::PlanLeaf> leaves;
  Tensor loss;
};

Made run_alone(uint64_t seed, size_t steps, Tensor (*leaf)(const RandomProgram::Leaf&)) {
  Made made;
  RandomProgram program(seed, [&](const RandomProgram::Leaf& each) {
    made.leaves.push_back({each.name, leaf(each)});
    return made.leaves.back().tensor;
  });
  made.loss = program.run(steps, kMostLeaves);
  return made;
}

// Rules for some leaves, at random: they move more than needed.
std::vector<spmd::PlanRule> random_rules(std::mt19937_64& random, const layout::MeshShape& mesh,
                                         const std::vector<spmd::PlanLeaf>& leaves) {
  std::vector<spmd::PlanRule> rules;
  for (const spmd::PlanLeaf& leaf : leaves) {
    if (random() % 3 != 0) continue;
    layout::Spec spec(leaf.tensor.rank());
    for (uint8_t axis = 0; axis < mesh.axis_count(); ++axis) {
      const size_t dim = random() % (leaf.tensor.rank() + 1);
      if (dim < leaf.tensor.rank()) spec.dim(dim).push_back(axis);
    }
    rules.push_back({leaf.name, print_spec(mesh, spec)});
  }
  return rules;
}

std::string random_costs(std::mt19937_64& random) {
  const double alphas[] = {0, 1e-9, 1e-6, 80e-6}, betas[] = {0, 1e-10, 1e-8}, rates[] = {0, 1e7, 1e10};
  return Json{{"alpha", alphas[random() % 4]}, {"beta", betas[random() % 3]}, {"rate", rates[random() % 3]}}.dump();
}

Json counts_of(const MeshStats& before, const MeshStats& after) {
  return {{"all_reduces", after.all_reduces - before.all_reduces},
          {"all_gathers", after.all_gathers - before.all_gathers},
          {"reduce_scatters", after.reduce_scatters - before.reduce_scatters},
          {"all_to_alls", after.all_to_alls - before.all_to_alls},
          {"moves", after.moves - before.moves},
          {"bytes_sent", after.bytes_sent - before.bytes_sent},
          {"bytes_received", after.bytes_received - before.bytes_received}};
}

// Runs by the plan: all members have its counts and bytes, and the loss and gradients of one process.
void run_planned(Member& member, uint64_t seed, size_t steps, uint64_t& sent) {
  SCOPED_TRACE(seed);
  const Mesh& mesh = member.line.program->mesh();
  std::mt19937_64 random(seed * 7 + 1);
  PlanSettings settings;
  const Made traced = run_alone(seed, steps, shape_of);
  settings.leaves = traced.leaves;
  // Buckets are filled in the order in which leaves are given, whatever the program does with them.
  const auto reorder = [seed](std::vector<spmd::PlanLeaf>& leaves) {
    if (seed % 2 == 0) std::reverse(leaves.begin(), leaves.end());
  };
  reorder(settings.leaves);
  settings.roots = {traced.loss};
  settings.is_automatic = true;
  settings.costs = random_costs(random);
  settings.rules = random_rules(random, member.mesh(), traced.leaves);
  settings.policy.bucket_bytes = mesh.policy().bucket_bytes;
  settings.policy.keeps_gathered = mesh.policy().keep_gathered;
  settings.policy.position = member.position();
  const Plan plan(member.mesh(), settings);

  const Made alone = run_alone(seed, steps, elements_of);
  const auto alone_context = make_local_context();
  alone_context->backward({alone.loss}, {});

  PlanSettings saved;
  saved.saved = plan.report();
  RandomProgram names(seed, [&](const RandomProgram::Leaf& leaf) {
    saved.leaves.push_back({leaf.name, elements_of(leaf)});
    return saved.leaves.back().tensor;
  });
  names.run(steps, kMostLeaves);
  const std::vector<spmd::PlanLeaf> leaves = saved.leaves;
  reorder(saved.leaves);
  Plan(member.mesh(), saved).apply(member.line, true);
  size_t next = 0;
  RandomProgram program(seed, [&](const RandomProgram::Leaf&) { return leaves[next++].tensor; });
  const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
  const MeshStats before = mesh.stats();
  const Tensor loss = program.run(steps, kMostLeaves);
  context->backward({loss}, {});
  const Json got = counts_of(before, mesh.stats());
  const Json report = Json::parse(plan.report());
  ASSERT_EQ(report.at("step"), got) << plan.report();
  sent += got.at("bytes_sent").get<uint64_t>();
  const double expected = alone.loss.item();
  EXPECT_NEAR(spmd::gather(loss, -1).item(), expected, 1e-9 * std::max(1.0, std::abs(expected)));
  const auto alone_gradients = alone_context->gradients();
  const auto gradients = context->gradients();
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor* gradient = alone_gradients->find(alone.leaves[i].tensor);
    const Tensor* sharded = gradients->find(leaves[i].tensor);
    ASSERT_EQ(gradient == nullptr, sharded == nullptr) << i;
    if (gradient == nullptr) continue;
    const Tensor whole = spmd::gather(*sharded, -1);
    for (int64_t k = 0; k < whole.count(); ++k) {
      const double value = gradient->contiguous().data_as<double>()[k];
      ASSERT_NEAR(whole.contiguous().data_as<double>()[k], value, 1e-9 * std::max(1.0, std::abs(value))) << i;
    }
  }
}

void run_all(const Dims& sizes, uint64_t first, uint64_t count, size_t steps, const MeshPolicy& policy = {}) {
  MeshGroup group(sizes, policy);
  group.run([&](Member& member) {
    uint64_t sent = 0;
    for (uint64_t seed = first; seed < first + count; ++seed) run_planned(member, seed, steps, sent);
    EXPECT_GT(sent, 0u);
  });
}

TEST(PlanSteps, SendWhatThePlanSaysOnTwoMembers) { run_all({2}, 1, 70, 7); }
TEST(PlanSteps, SendWhatThePlanSaysOnThreeMembers) { run_all({3}, 1001, 50, 7); }
TEST(PlanSteps, SendWhatThePlanSaysOnTwoAxes) { run_all({2, 2}, 2001, 30, 6); }
TEST(PlanSteps, SendWhatThePlanSaysInSmallBucketsWithGatheredParametersKept) {
  MeshPolicy policy;
  policy.keep_gathered = true;
  policy.bucket_bytes = 1;
  run_all({2}, 3001, 30, 7, policy);
}
TEST(PlanSteps, SendWhatThePlanSaysInBucketsOfAFewLeaves) {
  MeshPolicy policy;
  policy.bucket_bytes = 200;
  run_all({2}, 4001, 40, 9, policy);
}

using Leaves = std::vector<spmd::PlanLeaf>;

// The step that a plan by rules says, which is the one that the mesh takes. `make`: the leaves, shapes only or with
// elements, in the order in which they are marked.
Json step_of(Member& member, const std::vector<spmd::PlanRule>& rules, const std::function<Leaves(bool is_real)>& make,
             const std::function<Tensor(const Leaves&)>& run) {
  const Mesh& mesh = member.line.program->mesh();
  PlanSettings settings;
  settings.leaves = make(false);
  settings.roots = {run(settings.leaves)};
  settings.is_automatic = true;
  settings.rules = rules;
  settings.policy.position = member.position();
  settings.policy.bucket_bytes = mesh.policy().bucket_bytes;
  const Plan plan(member.mesh(), settings);
  PlanSettings saved;
  saved.saved = plan.report();
  saved.leaves = make(true);
  Plan(member.mesh(), saved).apply(member.line, true);
  const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
  const MeshStats before = mesh.stats();
  context->backward({run(saved.leaves)}, {});
  const Json step = Json::parse(plan.report()).at("step");
  EXPECT_EQ(step, counts_of(before, mesh.stats()));
  return step;
}

// A loss that is given ignore_index, even its default, adds up the rows that count.
TEST(PlanSteps, LossesAlikeButForASettingThatIsADefaultTakeOtherSteps) {
  MeshGroup group({2});
  group.run([](Member& member) {
    const auto make = [](bool is_real) {
      const Tensor logits = is_real ? numbers({4, 3}, 1) : spmd::make_shape_only(Dtype::kFloat64, {4, 3});
      autograd::set_requires_grad(logits, true);
      return Leaves{
          {"logits", logits},
          {"classes", is_real ? tensor_of<int64_t>({4}, {0, 2, 1, 2}) : spmd::make_shape_only(Dtype::kInt64, {4})}};
    };
    step_of(member, {{"logits", "('x', None)"}, {"classes", "('x',)"}}, make, [](const Leaves& leaves) {
      const Tensor &logits = leaves[0].tensor, &classes = leaves[1].tensor;
      const auto ignoring = ops::make_attributes({{"ignore_index", -100}});
      return apply("add",
                   {apply("cross_entropy", {logits, classes}), apply("cross_entropy", {logits, classes}, ignoring)});
    });
  });
}

// The weight fills a bucket, and the bias does not: what is marked last comes first, so the weight goes with the bias
// or alone.
TEST(PlanSteps, LeavesOfAnOpFillBucketsInTheOrderInWhichTheyAreMarked) {
  MeshPolicy policy;
  policy.bucket_bytes = 8 * 2 * 20;
  MeshGroup group({2}, policy);
  group.run([](Member& member) {
    for (const bool is_bias_last : {false, true}) {
      const auto make = [is_bias_last](bool is_real) {
        Leaves leaves;
        for (const auto& [name, shape] :
             {std::pair("x", Dims{4, 20}), std::pair("weight", Dims{2, 20}), std::pair("bias", Dims{2})}) {
          leaves.push_back({name, is_real ? numbers(shape, 1) : spmd::make_shape_only(Dtype::kFloat64, shape)});
          autograd::set_requires_grad(leaves.back().tensor, leaves.size() > 1);
        }
        if (!is_bias_last) std::swap(leaves[1], leaves[2]);
        return leaves;
      };
      const std::vector<spmd::PlanRule> rules = {{"x", "('x', None)"}, {"weight", "(None, None)"}, {"bias", "(None,)"}};
      const Json step = step_of(member, rules, make, [is_bias_last](const Leaves& leaves) {
        const Tensor &weight = leaves[is_bias_last ? 1 : 2].tensor, &bias = leaves[is_bias_last ? 2 : 1].tensor;
        return apply("sum", {apply("tanh", {apply("linear", {leaves[0].tensor, weight, bias})})});
      });
      EXPECT_EQ(step.at("all_reduces"), is_bias_last ? 1 : 2);
    }
  });
}

// A mesh that refuses hidden moves could not run the cheapest plan: rules lay the leaves as no op wants them.
TEST(PlanSteps, HiddenMovesThatTheMeshRefusesAreNotPlanned) {
  const layout::MeshShape mesh = mesh_of({2});
  PlanSettings settings;
  const Tensor a = spmd::make_shape_only(Dtype::kFloat64, {4, 4}), b = spmd::make_shape_only(Dtype::kFloat64, {4, 4});
  settings.leaves = {{"a", a}, {"b", b}};
  settings.roots = {apply("sum", {apply("mul", {a, b})})};
  settings.is_automatic = true;
  settings.rules = {{"a", "('x', None)"}, {"b", "(None, 'x')"}};
  EXPECT_EQ(Plan(mesh, settings).spec_of("a"), std::string("('x', None)"));
  settings.policy.refuses_hidden = true;
  EXPECT_EQ(failure_of([&] { Plan(mesh, settings); }).find("INVALID_ARGUMENT: found no specs"), 0u);
  settings.rules.pop_back();
  EXPECT_EQ(Plan(mesh, settings).spec_of("b"), std::string("('x', None)"));
}

}  // namespace
}  // namespace distag::testing
