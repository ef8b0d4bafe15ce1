// Specs that are searched for: those of brute force, by the costs of whole steps, and those that people choose.
#include "spmd/plan_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "base/error.h"
#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "spmd/plan.h"
#include "spmd/plan_choice.h"
#include "spmd/random_program.h"
#include "unit/layout/meshes.h"

namespace distag::spmd {
namespace {

using layout::MeshShape;
using layout::Spec;
using ops::make_attributes;
using testing::mesh_of;

Tensor run(const char* op, const Tensors& inputs, const ops::Attributes& attributes = {}) {
  return autograd::apply(*ops::find_op(op), inputs, attributes)[0];
}

// A program in the making: its leaves by name.
struct Model {
  PlanSettings settings;

  Tensor leaf(const std::string& name, const Dims& dims, bool is_trained = true, Dtype dtype = Dtype::kFloat32) {
    const Tensor tensor = make_shape_only(dtype, dims);
    if (is_trained) autograd::set_requires_grad(tensor, true);
    settings.leaves.push_back({name, tensor});
    return tensor;
  }
  Tensor input(const std::string& name, const Dims& dims) { return leaf(name, dims, false); }
  Tensor linear(const std::string& name, const Tensor& x, int64_t out) {
    return run("linear", {x, leaf(name + ".weight", {out, x.shape().back()}), leaf(name + ".bias", {out})});
  }
  Plan plan(const MeshShape& mesh, const Tensors& roots) {
    settings.roots = roots;
    settings.is_automatic = true;
    return Plan(mesh, settings);
  }
};

template <typename Code>
Error error_of(const Code& code) {
  try {
    code();
  } catch (const Error& error) {
    return error;
  }
  return {Status::kOk, ""};
}

nlohmann::json report_of(const Plan& plan) { return nlohmann::json::parse(plan.report()); }

// All specs of each leaf: a model's own variables are theirs.
std::vector<std::vector<Spec>> choices_of(const MeshShape& mesh, const TracedProgram& program) {
  std::vector<std::vector<Spec>> choices;
  for (const Tensor& leaf : program.leaves()) {
    std::vector<Spec> specs = {Spec(leaf.rank())};
    for (uint8_t axis = 0; axis < mesh.axis_count(); ++axis) {
      const std::vector<Spec> before = specs;
      for (const Spec& spec : before) {
        for (size_t d = 0; d < leaf.rank(); ++d) {
          Spec cut = spec;
          cut.dim(d).push_back(axis);
          const int64_t parts = mesh.size_of(cut.dim(d));
          if (layout::block_of(leaf.shape()[d], parts, parts - 1).extent > 0) specs.push_back(cut);
        }
      }
    }
    choices.push_back(specs);
  }
  return choices;
}

struct Outcome {
  Picoseconds best = UINT64_MAX;
  size_t tried = 0;
};

Outcome brute_force(StepCosts& costs, const std::vector<std::vector<Spec>>& choices, uint64_t memory,
                    const std::vector<uint64_t>& copies) {
  Outcome outcome;
  std::vector<size_t> at(choices.size());
  for (;;) {
    std::vector<Spec> leaves;
    uint64_t bytes = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      leaves.push_back(choices[i][at[i]]);
      const TracedProgram::Item& item = costs.program().items()[i];
      bytes += copies[i] * largest_part(costs.mesh(), leaves[i], item.shape, item.dtype);
    }
    const PlannedStep step = plan_step(costs, leaves);
    ++outcome.tried;
    if (memory == 0 || bytes + step.activation_bytes <= memory) outcome.best = std::min(outcome.best, step.part.time);
    size_t i = 0;
    while (i < at.size() && ++at[i] == choices[i].size()) at[i++] = 0;
    if (i == at.size()) return outcome;
  }
}

// Costs of which sometimes one, sometimes another part weighs most.
std::string random_costs(testing::RandomProgram& random) {
  const double alphas[] = {0, 1e-9, 1e-6, 80e-6}, betas[] = {0, 1e-10, 1e-8}, rates[] = {0, 1e8, 1e10};
  return nlohmann::json{
      {"alpha", alphas[random.below(4)]}, {"beta", betas[random.below(3)]}, {"rate", rates[random.below(3)]}}
      .dump();
}

// The searches of programs that were held against all choices.
struct Compared {
  int cut = 0;      // repeated leaves would take more time
  int refused = 0;  // nothing fits the memory
};

void compare_with_brute_force(const MeshShape& mesh, const TracedProgram& program, testing::RandomProgram& random,
                              Compared& compared) {
  const auto choices = choices_of(mesh, program);
  const PlanCosts costs(mesh, random_costs(random));
  StepCosts step(mesh, program, costs, {});
  ChoiceRequest request;
  request.fixed.resize(choices.size());
  request.copies.assign(choices.size(), 2);
  if (random.below(3) == 0) {
    uint64_t least = 0;
    for (size_t i = 0; i < choices.size(); ++i) {
      least += 2 * largest_part(mesh, choices[i][0], program.items()[i].shape, program.items()[i].dtype);
    }
    request.memory_bytes = least * (30 + random.below(70)) / 100;
  }
  std::vector<Spec> repeated;
  for (const auto& each : choices) repeated.push_back(each[0]);
  const Outcome outcome = brute_force(step, choices, request.memory_bytes, request.copies);
  PlanModel::Limits rough;
  rough.is_rough = true;
  const PlanModel below(step, request.fixed, request.copies, rough);
  ASSERT_LE(search(below.problem(), {}).bound, outcome.best);
  try {
    const SpecChoice choice = choose_specs(step, request);
    ASSERT_EQ(choice.step.part.time, outcome.best);
    ASSERT_EQ(choice.bound, outcome.best);
    compared.cut += plan_step(step, repeated).part.time > outcome.best ? 1 : 0;
  } catch (const Error& error) {
    ASSERT_EQ(error.status(), Status::kOutOfMemory) << error.message();
    ASSERT_EQ(outcome.best, UINT64_MAX) << error.message();
    ++compared.refused;
  }
}

testing::RandomProgram random_program(uint64_t seed) {
  return testing::RandomProgram(seed, [](const testing::RandomProgram::Leaf& leaf) {
    const Tensor tensor = make_shape_only(leaf.rows == 0 ? Dtype::kFloat64 : Dtype::kInt64, leaf.shape);
    if (leaf.is_trained) autograd::set_requires_grad(tensor, true);
    return tensor;
  });
}

void compare_with_brute_force(const Dims& sizes, uint64_t first_seed, int count, size_t steps, size_t leaves,
                              size_t most_tried) {
  const MeshShape mesh = mesh_of(sizes);
  Compared all;
  for (uint64_t seed = first_seed, compared = 0; compared < static_cast<uint64_t>(count); ++seed) {
    SCOPED_TRACE(seed);
    testing::RandomProgram random = random_program(seed);
    const Tensor root = random.run(steps, leaves);
    const TracedProgram program({{root}});
    size_t tried = 1;
    for (const auto& each : choices_of(mesh, program)) tried *= each.size();
    if (tried > most_tried) continue;
    ++compared;
    compare_with_brute_force(mesh, program, random, all);
    if (::testing::Test::HasFatalFailure()) return;
  }
  // Cuts are worth something in many of them, and memory binds in some.
  EXPECT_GT(all.cut, count / 6);
  EXPECT_GT(all.refused, count / 30);
}

// Both gradients of a repeated result are cut along one axis and sums along the other: to bring them there at once
// takes less than the sum of whole ones.
TEST(PlanModel, ARoughTableSaysNoMoreThanAStepTakes) {
  const MeshShape mesh = mesh_of({2, 8});
  Model model;
  const Dims shape = {8, 128, 128};
  const Tensor y = run("tanh", {model.leaf("x", shape)});
  Tensor sum;
  for (const char* name : {"a", "b"}) {
    const Tensor product = run("matmul", {y, model.leaf(name, shape)});
    sum = sum ? run("add", {sum, product}) : product;
  }
  const TracedProgram program({{run("mean", {sum})}});
  std::vector<std::optional<Spec>> fixed;
  for (const PlanLeaf& leaf : model.settings.leaves) {
    fixed.push_back(layout::parse_spec(mesh, leaf.name == "x" ? "(None, None, None)" : "('x', None, 'y')", 3));
  }
  const PlanCosts costs(mesh, std::nullopt);
  StepCosts step(mesh, program, costs, {});
  PlanModel::Limits rough;
  rough.is_rough = true;
  const PlanModel model_of(step, fixed, {1, 1, 1}, rough);
  EXPECT_LE(search(model_of.problem(), {}).bound, plan_step(step, {*fixed[0], *fixed[1], *fixed[2]}).part.time);
}

TEST(PlanModel, IsExactOnTwoMembers) { compare_with_brute_force({2}, 1, 300, 10, 5, 1000); }
TEST(PlanModel, IsExactOnThreeMembers) { compare_with_brute_force({3}, 5001, 200, 10, 5, 1000); }
TEST(PlanModel, IsExactOnTwoAxes) { compare_with_brute_force({2, 2}, 9001, 100, 8, 3, 3000); }

// A stack of equal blocks, of whose ops some come twice in a block and some meet gradients of the blocks around it.
Tensor equal_blocks(Model& model, size_t count, int64_t rows, int64_t width, bool is_residual) {
  Tensor x = model.input("x", {rows, width});
  for (size_t i = 0; i < count; ++i) {
    const Tensor weight = model.leaf("weight" + std::to_string(i), {width, width});
    const Tensor y = run("tanh", {run("matmul", {x, weight})});
    x = is_residual ? run("add", {x, run("tanh", {run("matmul", {y, weight})})}) : y;
  }
  return run("mean", {run("square", {x})});
}

TEST(PlanModel, IsExactForStacksOfEqualBlocks) {
  Compared all;
  for (const Dims& sizes : {Dims{2}, Dims{3}, Dims{2, 2}}) {
    for (uint64_t seed = 0; seed < 24; ++seed) {
      SCOPED_TRACE(seed);
      Model model;
      testing::RandomProgram random = random_program(20001 + seed);
      const size_t blocks = sizes.size() == 1 ? 4 : 2;
      const Tensor root = equal_blocks(model, blocks, 1 << random.below(7), 1 << random.below(7), seed % 2 == 0);
      compare_with_brute_force(mesh_of(sizes), TracedProgram({{root}}), random, all);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  EXPECT_GT(all.cut, 12);
  EXPECT_GT(all.refused, 1);
}

// Forward alone, so that nothing but the reader behind it tells the second tanh from the first: it finds the sum that
// the tanh has made of a product.
TEST(PlanModel, IsExactWhereAnEqualOpIsNotTheLastReader) {
  const MeshShape mesh = mesh_of({2});
  Model model;
  Tensor x = model.input("x", {8, 8});
  for (const char* name : {"first", "second"}) {
    const Tensor product = run("matmul", {x, model.input(name, {8, 8})});
    x = run("tanh", {product});
    if (name == std::string("second")) x = run("mul", {product, x});
  }
  const TracedProgram program({{run("mean", {x})}});
  const Spec rows = layout::parse_spec(mesh, "('x', None)", 2), columns = layout::parse_spec(mesh, "(None, 'x')", 2);
  const std::vector<Spec> leaves = {columns, rows, rows};
  const PlanCosts costs(mesh, std::nullopt);
  StepCosts step(mesh, program, costs, {});
  const PlanModel of(step, {leaves.begin(), leaves.end()}, {1, 1, 1}, {});
  const PlannedStep planned = plan_step(step, leaves);
  EXPECT_EQ(planned.part.counts.all_reduces, 2u);
  EXPECT_EQ(search(of.problem(), {}).cost, planned.part.time);
}

// A loss of two layers of that width, on `rows` rows.
Tensor two_layers(Model& model, int64_t rows, int64_t width) {
  const Tensor x = model.input("x", {rows, width});
  const Tensor hidden = run("gelu", {model.linear("up", x, 4 * width)});
  return run("mean", {run("square", {model.linear("down", hidden, width)})});
}

TEST(PlanAuto, LargeBatchesAreDataParallel) {
  for (const Dims& sizes : {Dims{2}, Dims{3}, Dims{2, 2}}) {
    Model model;
    const Plan plan = model.plan(mesh_of(sizes), {two_layers(model, 49152, 64)});
    EXPECT_STREQ(plan.spec_of("x"), sizes.size() == 1 ? "('x', None)" : "(('x', 'y'), None)");
    for (const char* name : {"up.weight", "down.weight"}) EXPECT_STREQ(plan.spec_of(name), "(None, None)") << name;
    const auto report = report_of(plan);
    EXPECT_EQ(report["mode"], "auto");
    EXPECT_EQ(report["step"]["all_reduces"], 1);
    EXPECT_EQ(report["step"]["all_gathers"], 0);
    EXPECT_EQ(report["seconds"], report["bound"]);
  }
}

// Columns and rows in turn, as in Megatron: one sum each way.
TEST(PlanAuto, LargeWeightsAreCutByColumnsAndRowsInTurn) {
  Model model;
  const Plan plan = model.plan(mesh_of({2}), {two_layers(model, 64, 2048)});
  EXPECT_STREQ(plan.spec_of("x"), "(None, None)");
  EXPECT_STREQ(plan.spec_of("up.weight"), "('x', None)");
  EXPECT_STREQ(plan.spec_of("up.bias"), "('x',)");
  EXPECT_STREQ(plan.spec_of("down.weight"), "(None, 'x')");
  EXPECT_STREQ(plan.spec_of("down.bias"), "(None,)");
  EXPECT_EQ(report_of(plan)["step"]["all_reduces"], 1);
}

// Six rows along an axis of four leave its last member none. A completion cuts so, and the search keeps that in place.
TEST(PlanModel, KeepsACutThatLeavesAMemberNothing) {
  const MeshShape mesh = mesh_of({2, 2, 4});
  Model model;
  const Tensor out = model.linear("layer", model.input("x", {8, 4}), 6);
  const TracedProgram program({{run("mean", {run("square", {out})})}});
  const Spec weight = layout::parse_spec(mesh, "('z', None)", 2), bias = layout::parse_spec(mesh, "('z',)", 1);
  const PlanCosts costs(mesh, std::nullopt);
  StepCosts step(mesh, program, costs, {});
  PlanModel::Limits limits;
  limits.free_axes = 3;
  limits.now = {Spec(2), weight, bias};
  const PlanModel of(step, {std::nullopt, weight, std::nullopt}, {1, 1, 1}, limits);
  EXPECT_TRUE(places_alike(mesh, of.leaves_of(search(of.problem(), {}).values)[2], bias));
}

TEST(PlanAuto, RulesStayAndTheRestSuitsThem) {
  Model model;
  model.settings.rules = {{"up.weight", "(None, 'x')"}};
  const Plan plan = model.plan(mesh_of({2}), {two_layers(model, 64, 2048)});
  EXPECT_STREQ(plan.spec_of("up.weight"), "(None, 'x')");
  EXPECT_NE(plan.report().find("rule \\\"up.weight\\\""), std::string::npos);
}

// Parameters are cut until the limit holds; a limit below the least that would do fails, and the message names that.
TEST(PlanAuto, ALimitOfMemoryCutsParameters) {
  Model model;
  model.settings.optimizer_copies = 2;
  const Tensor root = two_layers(model, 49152, 64);
  const auto free = report_of(model.plan(mesh_of({2}), {root}));
  const auto memory = free["memory"].get<uint64_t>();
  model.settings.memory_bytes = memory - 100;
  const auto less = report_of(model.plan(mesh_of({2}), {root}));
  EXPECT_LE(less["memory"].get<uint64_t>(), memory - 100);
  EXPECT_GE(less["seconds"].get<double>(), free["seconds"].get<double>());
  model.settings.memory_bytes = 1;
  const Error error = error_of([&] { model.plan(mesh_of({2}), {root}); });
  EXPECT_EQ(error.status(), Status::kOutOfMemory);
  const std::string named = "the least that would do is ";
  const size_t at = error.message().find(named);
  ASSERT_NE(at, std::string::npos) << error.message();
  const uint64_t least = std::stoull(error.message().substr(at + named.size()));
  model.settings.memory_bytes = least;
  EXPECT_EQ(report_of(model.plan(mesh_of({2}), {root}))["memory"], least);
  model.settings.memory_bytes = least - 1;
  EXPECT_EQ(error_of([&] { model.plan(mesh_of({2}), {root}); }).status(), Status::kOutOfMemory);
}

std::string why(const Plan& plan, const std::string& name) {
  const auto report = report_of(plan);
  for (const auto& leaf : report["leaves"]) {
    if (leaf["name"] == name) return leaf["why"];
  }
  return "there is no such leaf";
}

TEST(PlanAuto, EachSpecHasItsReason) {
  Model model;
  const Tensor root = two_layers(model, 49152, 64);
  const Plan free = model.plan(mesh_of({2}), {root});
  EXPECT_TRUE(std::regex_match(why(free, "x"), std::regex("saves [0-9]+[.][0-9]{6} us of a step, over repeated")))
      << why(free, "x");
  EXPECT_EQ(why(free, "up.weight"), "no cut of it saves time: repeated");
  model.settings.memory_bytes = report_of(free)["memory"].get<uint64_t>() - 100;
  const Plan less = model.plan(mesh_of({2}), {root});
  size_t cut_for_memory = 0;
  for (const char* name : {"up.weight", "up.bias", "down.weight", "down.bias"}) {
    cut_for_memory += why(less, name) == "repeated it would pass memory_bytes" ? 1 : 0;
  }
  EXPECT_GT(cut_for_memory, 0u) << less.report();
}

// No cut saves time, and some save memory.
TEST(PlanAuto, WhatTakesNoTimeIsCutForMemory) {
  Model model;
  model.settings.costs = "{\"alpha\": 0, \"beta\": 0, \"rate\": 0}";
  const Plan plan = model.plan(mesh_of({2}), {two_layers(model, 64, 64)});
  EXPECT_EQ(why(plan, "x"), "saves memory, and takes no time over repeated") << plan.report();
}

TEST(PlanAuto, ReasonsOfManyLeavesAreNotWorkedOut) {
  Model model;
  Tensor sum = model.input("0", {1 << 20});
  for (int i = 1; i < 260; ++i) sum = run("add", {sum, model.input(std::to_string(i), {1 << 20})});
  EXPECT_EQ(why(model.plan(mesh_of({2}), {sum}), "7"), "found by the search");
}

TEST(PlanAuto, AStepThatIsNotPossibleIsNone) {
  const auto with_elements = [](int64_t count) {
    Model model;
    model.settings.costs = "{\"rate\": 1000}";
    model.settings.is_inference = true;
    return why(model.plan(mesh_of({2}), {run("neg", {model.input("x", {count})})}), "x");
  };
  EXPECT_EQ(with_elements(25'000'000'000), "repeated, no step would be possible");
  EXPECT_EQ(error_of([&] { with_elements(100'000'000'000); }).message(),
            "no specs of the leaves were found by which a step takes a time that can be counted: give other costs");
  Model model;
  model.settings.policy.refuses_hidden = true;
  model.settings.rules = {{"a", "('x', None)"}};
  const Tensor a = model.input("a", {4, 4});
  const Error error = error_of([&] {
    model.plan(mesh_of({2}), {run("flip", {a}, make_attributes({{"dims", Dims{0}}}))});
  });
  EXPECT_EQ(error.status(), Status::kInvalidArgument);
  EXPECT_NE(error.message().find("without hidden moves, which the mesh forbids"), std::string::npos) << error.message();
}

TEST(PlanAuto, ASavedPlanIsReadBackAsItIs) {
  Model model;
  const Tensor root = two_layers(model, 64, 256);
  const Plan plan = model.plan(mesh_of({2, 2}), {root});
  Model again = model;
  again.settings.saved = plan.report();
  again.settings.is_automatic = false;
  again.settings.roots.clear();
  EXPECT_EQ(Plan(mesh_of({2, 2}), again.settings).report(), plan.report());
  for (const char* broken : {"\"seconds\":-1", "\"seconds\":null", "\"seconds\":1e999", "\"seconds\":\"\""}) {
    again.settings.saved = std::regex_replace(plan.report(), std::regex("\"seconds\":[0-9.e-]+"), broken);
    EXPECT_EQ(error_of([&] { Plan(mesh_of({2, 2}), again.settings); }).status(), Status::kInvalidArgument) << broken;
  }
  again.settings.saved = std::regex_replace(plan.report(), std::regex("\"bytes_sent\":[0-9]+"), "\"bytes_sent\":-5");
  EXPECT_EQ(error_of([&] { Plan(mesh_of({2, 2}), again.settings); }).status(), Status::kInvalidArgument);
}

TEST(PlanAuto, TimeThatIsOverEndsTheSearch) {
  Model model;
  int asked = 0;
  model.settings.is_over = [&asked] { return ++asked > 3; };
  const Error error = error_of([&] { model.plan(mesh_of({2, 2}), {two_layers(model, 64, 256)}); });
  EXPECT_EQ(error.status(), Status::kDeadline);
}

TEST(PlanCosts, AHostileTextIsRefusedNamingThePlace) {
  const MeshShape mesh = mesh_of({2, 2});
  const std::pair<const char*, const char*> cases[] = {{"", "JSON"},
                                                       {"[]", "the text"},
                                                       {"{\"gamma\": 1}", "gamma"},
                                                       {"{\"alpha\": -1}", "alpha"},
                                                       {"{\"beta\": 2}", "beta"},
                                                       {"{\"alpha\": NaN}", "JSON"},
                                                       {"{\"alpha\": 1e999}", "JSON"},
                                                       {"{\"alpha\": \"1\"}", "alpha"},
                                                       {"{\"rate\": 5}", "rate"},
                                                       {"{\"outer\": 1}", "outer"},
                                                       {"{\"outer\": {\"rate\": 1}}", "outer.rate"},
                                                       {"{\"axes\": {\"q\": {}}}", "axes.q"},
                                                       {"{\"axes\": {\"x\": {\"beta\": -1}}}", "axes.x.beta"},
                                                       {"{\"axes\": {\"x\": [[[[[1]]]]]}}", "deeper"}};
  for (const auto& [text, place] : cases) {
    const Error error = error_of([&, text = text] { PlanCosts(mesh, std::string(text)); });
    EXPECT_EQ(error.status(), Status::kInvalidArgument) << text;
    EXPECT_NE(error.message().find(place), std::string::npos) << text << ": " << error.message();
  }
}

TEST(PlanCosts, AnAxisOfItsOwnGoesBeforeOneBetweenGranules) {
  const MeshShape mesh = mesh_of({2, 2}, {0, 0, 1, 1});
  const PlanCosts usual(mesh, std::nullopt);
  EXPECT_EQ(usual.exchange(1), 80'000'000u);
  EXPECT_EQ(usual.exchange(3, uint64_t{1} << 20), 80'000'000u + 1000u * (uint64_t{1} << 20));
  EXPECT_EQ(usual.computing(10), 1000u);
  const PlanCosts outer(mesh,
                        std::string("{\"alpha\": 1e-6, \"outer\": {\"alpha\": 3e-6, \"beta\": 2e-9}, \"rate\": 0}"));
  EXPECT_EQ(outer.exchange(1), 3'000'000u);
  EXPECT_EQ(outer.exchange(2), 1'000'000u);
  EXPECT_EQ(outer.exchange(3), 3'000'000u);
  EXPECT_EQ(outer.transport(1, 1 << 20), 2000u * (uint64_t{1} << 20));
  EXPECT_EQ(outer.computing(UINT64_MAX), 0u);
  const PlanCosts own(mesh, std::string("{\"outer\": {\"alpha\": 3e-6}, \"axes\": {\"x\": {\"alpha\": 5e-6}}}"));
  EXPECT_EQ(own.exchange(1), 5'000'000u);
  EXPECT_EQ(own.exchange(2, UINT64_MAX), UINT64_MAX);
}

constexpr int64_t kBatch = 8, kLength = 16, kWidth = 64, kHeads = 4;

Tensor heads(const Tensor& x) {
  const Tensor split =
      run("reshape", {x}, make_attributes({{"shape", Dims{kBatch, kLength, kHeads, kWidth / kHeads}}}));
  return run("permute", {split}, make_attributes({{"dims", Dims{0, 2, 1, 3}}}));
}

// Twenty-four ops.
Tensor transformer_block(Model& model, const std::string& name, const Tensor& x) {
  const auto norm = [&](const std::string& part, const Tensor& t) {
    return run("layer_norm",
               {t, model.leaf(name + part + ".weight", {kWidth}), model.leaf(name + part + ".bias", {kWidth})});
  };
  const Tensor n = norm(".norm1", x);
  const Tensor q = heads(model.linear(name + ".q", n, kWidth));
  const Tensor k =
      run("transpose", {heads(model.linear(name + ".k", n, kWidth))}, make_attributes({{"dim0", 2}, {"dim1", 3}}));
  const Tensor v = heads(model.linear(name + ".v", n, kWidth));
  const Tensor scores =
      run("softmax", {run("mul_scalar", {run("matmul", {q, k})}, make_attributes({{"value", 0.25}}))});
  const Tensor mixed = run("permute", {run("matmul", {scores, v})}, make_attributes({{"dims", Dims{0, 2, 1, 3}}}));
  const Tensor joined = run("reshape", {mixed}, make_attributes({{"shape", Dims{kBatch, kLength, kWidth}}}));
  const Tensor middle = run("add", {x, model.linear(name + ".o", joined, kWidth)});
  const Tensor hidden = run("gelu", {model.linear(name + ".up", norm(".norm2", middle), 4 * kWidth)});
  return run("add", {middle, model.linear(name + ".down", hidden, kWidth)});
}

// Work is counted, as a time would depend on the machine.
TEST(PlanModel, EqualLayersShareTheirRowsAndTheSearchGrowsWithTheirNumber) {
  for (const Dims& sizes : {Dims{2}, Dims{2, 2}}) {
    const MeshShape mesh = mesh_of(sizes);
    const PlanCosts costs(mesh, std::nullopt);
    std::vector<size_t> rows;
    std::vector<uint64_t> steps;
    for (const int layers : {4, 8}) {
      Model model;
      Tensor x = model.input("x", {kBatch, kLength, kWidth});
      for (int i = 0; i < layers; ++i) x = transformer_block(model, std::to_string(i), x);
      const TracedProgram program({{run("mean", {run("square", {x})})}});
      const size_t leaves = program.leaves().size();
      StepCosts step(mesh, program, costs, {});
      PlanModel::Limits limits;
      limits.is_rough = true;
      const PlanModel of(step, std::vector<std::optional<Spec>>(leaves), std::vector<uint64_t>(leaves, 2), limits);
      rows.push_back(of.worked_out());
      steps.push_back(search(of.problem(), {}).steps);
    }
    EXPECT_EQ(rows[1], rows[0]);
    EXPECT_LT(steps[1], steps[0] * 9 / 4);
  }
}

// Three axes have too many cuts for one search. What is found still takes little more than the bound, which is the time
// of computing alone, and no more than what people would write.
TEST(PlanAuto, ThreeAxesAreSharedAsWellAsByHand) {
  const MeshShape mesh = mesh_of({2, 2, 2});
  const auto seconds_of = [&](std::vector<PlanRule> rules) {
    Model model;
    model.settings.rules = std::move(rules);
    Tensor x = model.input("x", {kBatch, kLength, kWidth});
    for (int i = 0; i < 3; ++i) x = transformer_block(model, "h" + std::to_string(i), x);
    model.settings.costs = "{\"alpha\": 1e-7, \"beta\": 1e-10}";
    const auto report = report_of(model.plan(mesh, {run("mean", {run("square", {x})})}));
    EXPECT_LE(report["bound"], report["seconds"]);
    return std::pair(report["seconds"].get<double>(), report["bound"].get<double>());
  };
  const auto [seconds, bound] = seconds_of({});
  EXPECT_LT(seconds, bound * 1.5);
  const auto repeated = [](const std::string& cut, const std::string& weights) {
    return std::vector<PlanRule>{
        {"x", cut}, {"**.bias", "(None,)"}, {"**.norm?.weight", "(None,)"}, {"**.weight", weights}};
  };
  EXPECT_LE(seconds, seconds_of(repeated("(('x', 'y', 'z'), None, None)", "(None, None)")).first);
  EXPECT_LE(seconds, seconds_of(repeated("(('x', 'y', 'z'), None, None)", "(('x', 'y', 'z'), None)")).first);
  EXPECT_LE(seconds, seconds_of(repeated("(None, None, None)", "(None, None)")).first / 4);
}

// No gap, on two axes.
TEST(PlanAuto, ATransformerIsPlannedExactly) {
  for (const int layers : {1, 4, 17}) {
    Model model;
    Tensor x = model.input("x", {kBatch, kLength, kWidth});
    for (int i = 0; i < layers; ++i) x = transformer_block(model, "h" + std::to_string(i), x);
    const auto report = report_of(model.plan(mesh_of({2, 2}), {run("mean", {run("square", {x})})}));
    EXPECT_EQ(report["seconds"], report["bound"]);
    EXPECT_GT(report["seconds"].get<double>(), 0);
  }
}

}  // namespace
}  // namespace distag::spmd
