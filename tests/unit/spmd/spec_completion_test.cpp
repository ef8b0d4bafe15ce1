#include "spmd/spec_completion.h"

#include <gtest/gtest.h>

#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "spmd/plan.h"
#include "support/expect.h"
#include "unit/layout/meshes.h"

namespace distag::spmd {
namespace {

using layout::MeshShape;
using ops::make_attributes;
using testing::failure_of;
using testing::mesh_of;

Tensor shape(const Dims& dims, bool is_trained = false, Dtype dtype = Dtype::kFloat32) {
  Tensor tensor = make_shape_only(dtype, dims);
  if (is_trained) autograd::set_requires_grad(tensor, true);
  return tensor;
}

Tensor run(const char* op, const Tensors& inputs, const ops::Attributes& attributes = {}) {
  return autograd::apply(*ops::find_op(op), inputs, attributes)[0];
}

// A program in the making: its leaves by name.
struct Model {
  PlanSettings settings;

  Tensor leaf(const std::string& name, const Dims& dims, bool is_trained = true, Dtype dtype = Dtype::kFloat32) {
    const Tensor tensor = shape(dims, is_trained, dtype);
    settings.leaves.push_back({name, tensor});
    return tensor;
  }
  Tensor linear(const std::string& name, const Tensor& x, int64_t out) {
    return run("linear", {x, leaf(name + ".weight", {out, x.shape().back()}), leaf(name + ".bias", {out})});
  }
  Tensor norm(const std::string& name, const Tensor& x) {
    const int64_t width = x.shape().back();
    return run("layer_norm", {x, leaf(name + ".weight", {width}), leaf(name + ".bias", {width})});
  }
  Plan plan(const MeshShape& mesh, const Tensors& roots, std::vector<PlanRule> rules) {
    settings.roots = roots;
    settings.rules = std::move(rules);
    return Plan(mesh, settings);
  }
};

constexpr int64_t kBatch = 4, kLength = 4, kWidth = 8, kHeads = 4;

Tensor heads(const Tensor& x) {
  const Tensor split =
      run("reshape", {x}, make_attributes({{"shape", Dims{kBatch, kLength, kHeads, kWidth / kHeads}}}));
  return run("permute", {split}, make_attributes({{"dims", Dims{0, 2, 1, 3}}}));
}

// Before the norms, as most transformers have it.
Tensor block(Model& model, const std::string& name, const Tensor& x) {
  const Tensor in = model.norm(name + ".norm1", x);
  const Tensor q = heads(model.linear(name + ".qp", in, kWidth));
  const Tensor k = heads(model.linear(name + ".k", in, kWidth));
  const Tensor v = heads(model.linear(name + ".v", in, kWidth));
  const Tensor mixed =
      run("permute", {run("scaled_dot_product_attention", {q, k, v})}, make_attributes({{"dims", Dims{0, 2, 1, 3}}}));
  const Tensor joined = run("reshape", {mixed}, make_attributes({{"shape", Dims{kBatch, kLength, kWidth}}}));
  const Tensor middle = run("add", {x, model.linear(name + ".o", joined, kWidth)});
  const Tensor wide = model.linear(name + ".up", model.norm(name + ".norm2", middle), 4 * kWidth);
  return run("add", {middle, model.linear(name + ".down", run("gelu", {wide}), kWidth)});
}

Tensor loss_of(const Tensor& x) { return run("mean", {run("square", {x})}); }

void expect_columns(const Plan& plan, const std::string& name) {
  EXPECT_STREQ(plan.spec_of(name + ".weight"), "('y', None)") << name;
  EXPECT_STREQ(plan.spec_of(name + ".bias"), "('y',)") << name;
}
void expect_rows(const Plan& plan, const std::string& name) {
  EXPECT_STREQ(plan.spec_of(name + ".weight"), "(None, 'y')") << name;
  EXPECT_STREQ(plan.spec_of(name + ".bias"), "(None,)") << name;
}
void expect_repeated(const Plan& plan, const std::string& name) {
  EXPECT_STREQ(plan.spec_of(name + ".weight"), "(None,)") << name;
  EXPECT_STREQ(plan.spec_of(name + ".bias"), "(None,)") << name;
}

// A single rule, which fits the columns of a weight of attention and of the first of the two products behind it.
TEST(SpecCompletion, FindsThePairsOfMegatronInTransformers) {
  Model model;
  Tensor x = model.leaf("x", {kBatch, kLength, kWidth}, false);
  for (const char* name : {"0", "1"}) x = block(model, name, x);
  const Plan plan = model.plan(mesh_of({2, 2}), {loss_of(x)}, {{"?.?p.weight", "R, S(0)"}});
  EXPECT_STREQ(plan.spec_of("x"), "(None, None, None)");
  for (const std::string name : {"0", "1"}) {
    for (const char* part : {".qp", ".k", ".v", ".up"}) expect_columns(plan, name + part);
    for (const char* part : {".o", ".down"}) expect_rows(plan, name + part);
    for (const char* part : {".norm1", ".norm2"}) expect_repeated(plan, name + part);
  }
  EXPECT_EQ(plan.report().find("data move"), std::string::npos);
}

// A batch that is cut leaves weights whole; what goes with it row by row is cut alike.
TEST(SpecCompletion, CutsTargetsAsTheirBatch) {
  Model model;
  const Tensor x = model.leaf("x", {8, 4}, false);
  const Tensor targets = model.leaf("targets", {8}, false, Dtype::kInt64);
  const Tensor logits = model.linear("fc", x, 6);
  const Plan plan = model.plan(mesh_of({2, 2}), {run("cross_entropy", {logits, targets})}, {{"x", "('x', None)"}});
  EXPECT_STREQ(plan.spec_of("targets"), "('x',)");
  EXPECT_STREQ(plan.spec_of("fc.weight"), "(None, None)");
  EXPECT_STREQ(plan.spec_of("fc.bias"), "(None,)");
  EXPECT_NE(plan.report().find("\"why\":\"'x' follows from op 1 (cross_entropy)\""), std::string::npos);
  EXPECT_NE(plan.report().find("\"why\":\"nothing follows for it: repeated\""), std::string::npos);
}

// From the result to the table, through ops that carry the cut.
TEST(SpecCompletion, GoesBackToWhatMakesAResult) {
  Model model;
  const Tensor wide = model.leaf("wide", {4, 6}, false);
  const Tensor narrow = model.leaf("narrow", {6, 4}, false);
  const Tensor turned = run("transpose", {run("relu", {narrow})}, make_attributes({{"dim0", 0}, {"dim1", 1}}));
  const Plan plan = model.plan(mesh_of({2, 2}), {run("mul", {wide, turned})}, {{"wide", "('x', 'y')"}});
  EXPECT_STREQ(plan.spec_of("narrow"), "('y', 'x')");
}

TEST(SpecCompletion, LeavesWholeWhatNotAllReadersWantCut) {
  Model model;
  const Tensor rows = model.leaf("rows", {4, 4}, false);
  const Tensor other = run("relu", {model.leaf("other", {4, 4}, false)});
  const Tensor first = run("mul", {rows, other});
  const Plan plan = model.plan(mesh_of({2}), {first, run("square", {other})}, {{"rows", "('x', None)"}});
  EXPECT_STREQ(plan.spec_of("other"), "(None, None)");
}

TEST(SpecCompletion, RepeatsWhereTwoOpsWantDifferentCutsAndSaysSo) {
  Model model;
  const Tensor rows = model.leaf("rows", {4, 4}, false);
  const Tensor columns = model.leaf("columns", {4, 4}, false);
  const Tensor both = model.leaf("both", {4, 4}, false);
  const Tensor behind = model.leaf("behind", {4, 4}, false);
  const Plan plan =
      model.plan(mesh_of({2}), {run("mul", {rows, both}), run("mul", {both, behind}), run("mul", {columns, both})},
                 {{"rows", "('x', None)"}, {"columns", "(None, 'x')"}});
  EXPECT_STREQ(plan.spec_of("both"), "(None, None)");
  EXPECT_STREQ(plan.spec_of("behind"), "(None, None)");
  EXPECT_NE(plan.report().find("op 0 (mul) wants dim 0 cut by 'x', op 2 (mul) "), std::string::npos) << plan.report();
  EXPECT_NE(plan.report().find("\"name\":\"behind\",\"dtype\":\"float32\",\"shape\":[4,4],\"spec\":\"(None, None)\","
                               "\"why\":\"nothing follows for it: repeated\""),
            std::string::npos);
}

// Two axes on one dim keep the order of the input that they follow from.
TEST(SpecCompletion, KeepsTheOrderOfAxes) {
  Model model;
  const Tensor x = model.leaf("x", {8}, false);
  const Tensor mask = model.leaf("mask", {8}, false);
  const Plan plan = model.plan(mesh_of({2, 2}), {run("mul", {mask, x})}, {{"x", "(('y', 'x'),)"}});
  EXPECT_STREQ(plan.spec_of("mask"), "(('y', 'x'),)");
}

// A member has one axis of several members and others of one, which cut nothing.
TEST(SpecCompletion, IgnoresAxesOfOneMember) {
  Model model;
  const Tensor x = model.leaf("x", {8, 4}, false);
  const Tensor y = model.linear("fc", x, 6);
  const Plan plan = model.plan(mesh_of({1, 2}), {y}, {{"x", "('x', None)"}, {"fc.weight", "('y', None)"}});
  EXPECT_STREQ(plan.spec_of("fc.bias"), "('y',)");
}

TEST(SpecCompletion, OfLeavesThatTheProgramLacks) {
  Model model;
  const Tensor x = model.leaf("x", {8, 4}, false);
  const Tensor y = model.linear("fc", x, 6);
  model.leaf("unused", {3});
  EXPECT_NE(model.plan(mesh_of({2}), {y}, {})
                .report()
                .find("the program does not use it (or ran it with tensors that have elements "
                      "only: give it shapes): repeated"),
            std::string::npos);
  Model others;
  others.leaf("a", {3});
  EXPECT_EQ(failure_of([&] { others.plan(mesh_of({2}), {y}, {}); }),
            "INVALID_ARGUMENT: the program of the roots uses none of the 1 leaves: give the tensors that it was run "
            "with");
  EXPECT_EQ(failure_of([&] { others.plan(mesh_of({2}), {x}, {}); }),
            "INVALID_ARGUMENT: roots[0], float32[8, 4], is no result of an op: run the program once with inputs of "
            "DISTAG_INIT_SHAPE, and give its results");
  EXPECT_EQ(failure_of([&] {
              others.plan(mesh_of({2}), {y, Tensor::empty(Dtype::kBool, {2})}, {});
            }),
            "INVALID_ARGUMENT: roots[1], bool[2], has elements: run the program once with inputs of DISTAG_INIT_SHAPE, "
            "and give its results");
}

// A tensor without a name is not marked, so that it counts as repeated; of two names the one with a rule counts.
TEST(SpecCompletion, OfTensorsWithoutANameOrWithTwo) {
  Model model;
  const Tensor hidden = shape({8, 4});
  const Tensor x = model.leaf("x", {8, 4}, false);
  model.settings.leaves.push_back({"again", x});
  const Plan plan = model.plan(mesh_of({2}), {run("mul", {run("mul", {hidden, x}), model.leaf("y", {8, 4}, false)})},
                               {{"again", "('x', None)"}});
  EXPECT_STREQ(plan.spec_of("x"), "('x', None)");
  EXPECT_STREQ(plan.spec_of("y"), "('x', None)");
  EXPECT_NE(plan.report().find("\"why\":\"the same tensor has a rule\""), std::string::npos);
}

TEST(SpecCompletion, IsReportedAlikeAndReadBack) {
  const auto make = [](std::optional<std::string> saved, int64_t width) {
    Model model;
    const Tensor x = model.leaf("x", {kBatch, kLength, kWidth}, false);
    model.settings.saved = std::move(saved);
    const bool has_rules = !model.settings.saved;
    const Tensor y =
        run("mul_scalar", {block(model, "0", x)}, make_attributes({{"value", static_cast<double>(width)}}));
    return model.plan(mesh_of({2, 2}), {y},
                      has_rules ? std::vector<PlanRule>{{"?.?p.weight", "R, S(0)"}} : std::vector<PlanRule>());
  };
  const std::string report = make({}, 1).report();
  EXPECT_EQ(make({}, 1).report(), report);
  EXPECT_EQ(make(report, 1).report(), report);
  EXPECT_NE(report.find("\"mode\":\"complete\""), std::string::npos);
  EXPECT_NE(report.find("{\"name\":\"linear\",\"spec\":\"(None, None, None) sum('y')\",\"why\":\"nothing moves\"}"),
            std::string::npos)
      << report;
  EXPECT_EQ(failure_of([&] { make(report, 2); }), "INVALID_ARGUMENT: saved: a plan for another program");
}

// The plan of shapes is that of the tensors with elements which a program is then run with: no roots are needed again.
TEST(SpecCompletion, ReadBackWithoutRootsIsThePlanOfRealTensors) {
  Model model;
  const Tensor x = model.leaf("x", {kBatch, kLength, kWidth}, false);
  const std::string report = model.plan(mesh_of({2, 2}), {block(model, "0", x)}, {{"?.?p.weight", "R, S(0)"}}).report();
  PlanSettings real;
  for (const PlanLeaf& leaf : model.settings.leaves) {
    real.leaves.push_back({leaf.name, Tensor::empty(leaf.tensor.dtype(), leaf.tensor.shape())});
    if (leaf.name != "x") autograd::set_requires_grad(real.leaves.back().tensor, true);
  }
  real.saved = report;
  const Plan plan(mesh_of({2, 2}), real);
  EXPECT_EQ(plan.report(), report);
  expect_columns(plan, "0.up");
  const auto refused = [&](const std::string& from, const std::string& to) {
    PlanSettings given = real;
    given.saved = std::string(report).replace(report.find(from), from.size(), to);
    return failure_of([&] { Plan(mesh_of({2, 2}), given); });
  };
  EXPECT_EQ(refused("\"complete\"", "\"swift\""), "INVALID_ARGUMENT: saved: no plan has its mode");
  const std::string no_hash = "INVALID_ARGUMENT: saved: program is no hash";
  EXPECT_EQ(refused("\"program\":\"", "\"program\":\"0"), no_hash);
  EXPECT_EQ(refused("\"program\":\"", "\"program\":\"x"), no_hash);
  EXPECT_TRUE(refused("\"program\":\"", "\"x\":\"").starts_with("INVALID_ARGUMENT: saved: not the report of a plan"));
  EXPECT_TRUE(refused("\"ops\"", "\"oops\"").starts_with("INVALID_ARGUMENT: saved: not the report of a plan"));
  PlanSettings rules = model.settings;
  rules.roots.clear();
  model.settings.saved = Plan(mesh_of({2, 2}), rules).report();
  EXPECT_EQ(failure_of([&] {
              model.plan(mesh_of({2, 2}), model.settings.roots, {});
            }),
            "INVALID_ARGUMENT: saved: its mode is \"rules\": a plan without roots, and here are some");
}

// Programs of many ops take a few passes over them.
TEST(SpecCompletion, OfAHundredThousandOps) {
  Model model;
  const Tensor x = model.leaf("x", {8, 4}, false);
  Tensor y = x;
  for (int i = 0; i < 50000; ++i) y = run("relu", {run("add", {y, x})});
  const Tensor weight = model.leaf("weight", {8, 4});
  const Plan plan = model.plan(mesh_of({2, 2}), {run("mul", {y, weight})}, {{"x", "('x', None)"}});
  EXPECT_STREQ(plan.spec_of("weight"), "('x', None)");
}

// Three products in one: what goes back through split counts once for its input.
TEST(SpecCompletion, GoesBackThroughAnOpOfSeveralResults) {
  const auto spec_of_other = [](bool has_other_reader) {
    Model model;
    const Tensor rows = model.leaf("rows", {4, 2}, false);
    const Tensor joined = run("relu", {model.leaf("other", {4, 4}, false)});
    const auto sizes = make_attributes({{"sizes", Dims{2, 2}}, {"dim", 1}});
    Tensors roots;
    for (const Tensor& part : autograd::apply(*ops::find_op("split"), Tensors{joined}, sizes)) {
      roots.push_back(run("mul", {rows, part}));
    }
    if (has_other_reader) roots.push_back(run("square", {joined}));
    return std::string(model.plan(mesh_of({2}), roots, {{"rows", "('x', None)"}}).spec_of("other"));
  };
  EXPECT_EQ(spec_of_other(false), "('x', None)");
  EXPECT_EQ(spec_of_other(true), "(None, None)");
}

// Each is found to move more by an op behind the one that its leaf is an input of.
TEST(SpecCompletion, TakesBackThousandsOfCutsInAFewRounds) {
  constexpr size_t kCuts = 2000;
  const Tensor rows = shape({4, 4});
  Tensors roots;
  for (size_t i = 0; i < kCuts; ++i) {
    const Tensor leaf = shape({4, 4});
    roots.push_back(run("mul", {rows, leaf}));
    roots.push_back(run("cumsum", {run("relu", {leaf})}, make_attributes({{"dim", 0}})));
  }
  const MeshShape mesh = mesh_of({2});
  const TracedProgram program(roots);
  std::vector<std::optional<layout::Spec>> fixed(program.leaves().size());
  fixed[0] = layout::parse_spec(mesh, "('x', None)", 2);
  const SpecCompletion completion(mesh, program, fixed);
  for (size_t leaf = 1; leaf <= kCuts; ++leaf) {
    EXPECT_EQ(completion.spec_of(leaf).cut(), 0u);
    EXPECT_NE(completion.why(leaf).find("(cumsum) would move more: repeated"), std::string::npos);
  }
  EXPECT_LE(completion.placement_count(), 10 * program.steps().size());
}

// The cut causes moves of the same class, but with more bytes.
TEST(SpecCompletion, TakesBackACutThatMovesMoreBytesOfWhatMovesAnyway) {
  Model model;
  const Tensor rows = model.leaf("rows", {4, 4}, false);
  const Tensor other = model.leaf("other", {4, 4}, false);
  const Tensor leaf = model.leaf("leaf", {4, 4}, false);
  const Tensor joined = run("concat", {run("relu", {leaf}), other}, make_attributes({{"dim", 0}}));
  const Plan plan =
      model.plan(mesh_of({2}), {run("mul", {rows, leaf}), joined}, {{"rows", "('x', None)"}, {"other", "('x', None)"}});
  EXPECT_STREQ(plan.spec_of("leaf"), "(None, None)");
  EXPECT_NE(plan.report().find("op 1 (concat) would move more: repeated"), std::string::npos) << plan.report();
}

// Each placement takes time for all inputs, so that their number must not grow with that of the inputs.
TEST(SpecCompletion, PlacesAnOpOfThousandsOfInputsAFewTimes) {
  constexpr size_t kInputs = 2400;
  const MeshShape mesh = mesh_of({2});
  const Tensor rows = shape({4, 4}), columns = shape({4, 4});
  Tensors inputs = {rows, columns}, behind, roots;
  for (size_t i = 0; i < kInputs; ++i) {
    inputs.push_back(shape({4, 4}));
    const Tensor leaf = shape({4, 4});
    roots.push_back(run("mul", {rows, leaf}));
    behind.push_back(run("relu", {leaf}));
  }
  // The first moves columns, whatever its leaves do; the second moves what has been cut by products before it.
  roots.push_back(run("concat", inputs, make_attributes({{"dim", 1}})));
  roots.push_back(run("concat", behind, make_attributes({{"dim", 0}})));
  const TracedProgram program(roots);
  std::vector<std::optional<layout::Spec>> fixed(program.leaves().size());
  fixed[0] = layout::parse_spec(mesh, "('x', None)", 2);
  for (size_t i = 0; i < fixed.size(); ++i) {
    if (program.leaves()[i].id() == columns.id()) fixed[i] = layout::parse_spec(mesh, "(None, 'x')", 2);
  }
  const SpecCompletion completion(mesh, program, fixed);
  size_t cut = 0;
  for (size_t i = 0; i < fixed.size(); ++i) cut += completion.spec_of(i).cut() != 0 ? 1 : 0;
  EXPECT_EQ(cut, kInputs + 2);
  EXPECT_LE(completion.placement_count(), 30 * program.steps().size());
  EXPECT_LE(completion.count_of_large(), 1000u);
}

// A reader may add up a leaf; the leaf still lies as a sum.
TEST(SpecCompletion, LeavesALeafThatIsASumASum) {
  const Tensor a = shape({4, 4}), b = shape({4, 4});
  const MeshShape mesh = mesh_of({2});
  const TracedProgram program(Tensors{run("mul", {a, b}), run("square", {a})});
  const layout::Spec sum = layout::parse_spec(mesh, "(None, None) sum('x')", 2);
  const SpecCompletion completion(mesh, program, {sum, layout::Spec(2)});
  EXPECT_EQ(completion.spec_of(0), sum);
  EXPECT_NE(completion.moves_of(0), layout::MoveClass::kNone);
  EXPECT_EQ(completion.moves_of(1), layout::MoveClass::kNone);
}

// A saved plan is of the same names at the same places, and of the same trained leaves.
TEST(SpecCompletion, OfLeavesThatAreSwappedIsAnother) {
  const auto make = [](std::optional<std::string> saved, bool is_swapped, bool is_trained, bool is_turned) {
    Model model;
    const Tensor a = shape({4, 4}, true), b = shape({4, 4}, is_trained);
    model.settings.leaves = {{"a", is_swapped ? b : a}, {"b", is_swapped ? a : b}};
    if (is_turned) std::swap(model.settings.leaves[0], model.settings.leaves[1]);
    model.settings.saved = std::move(saved);
    return model.plan(mesh_of({2}), {run("matmul", {run("relu", {a}), b})}, {}).report();
  };
  const std::string report = make({}, false, true, false);
  const std::string refused = "INVALID_ARGUMENT: saved: a plan for another program";
  EXPECT_NO_THROW(make(report, false, true, true));
  EXPECT_EQ(failure_of([&] { make(report, true, true, false); }), refused);
  EXPECT_EQ(failure_of([&] { make(report, false, false, false); }), refused);
}

// A program of ops on square tensors.
Tensor random_program(testing::Random& random, Tensors& leaves) {
  using testing::below;
  for (size_t i = 0; i < 3 + below(random, 3); ++i) leaves.push_back(shape({12, 12}, below(random, 2) == 0));
  Tensors values = leaves;
  for (size_t i = 0; i < 4 + below(random, 8); ++i) {
    const Tensor a = values[below(random, values.size())];
    const Tensor b = values[below(random, values.size())];
    constexpr const char* kPairs[] = {"add", "mul", "matmul", "linear", "sub"};
    switch (below(random, 9)) {
      case 0:
        values.push_back(run("relu", {a}));
        break;
      case 1:
        values.push_back(run("transpose", {a}, make_attributes({{"dim0", 0}, {"dim1", 1}})));
        break;
      case 2:
        values.push_back(run("softmax", {a}));
        break;
      case 3: {
        const auto along = make_attributes({{"dims", Dims{1}}, {"keepdim", true}});
        values.push_back(run("sub", {a, run("mean", {a}, along)}));
        break;
      }
      default:
        values.push_back(run(kPairs[below(random, 5)], {a, b}));
    }
  }
  return run("add", {run("sum", {values.back()}), run("sum", {values[values.size() / 2]})});
}

// However leaves are cut by what follows, no op moves more than where they are repeated; and each leaf lies as some op
// takes it, or is repeated.
TEST(SpecCompletion, MakesNoOpOfARandomProgramMoveMore) {
  testing::Random random(7);
  size_t cuts = 0, taken_back = 0;
  for (int round = 0; round < 1000; ++round) {
    const MeshShape mesh = mesh_of(round % 2 == 0 ? Dims{2, 2} : Dims{3, 2});
    Tensors leaves;
    const Tensor root = random_program(random, leaves);
    const TracedProgram program(Tensors{root});
    std::vector<std::optional<layout::Spec>> fixed(program.leaves().size()), repeated;
    for (size_t i = 0; i < fixed.size(); ++i) {
      if (testing::below(random, 3) == 0) fixed[i] = testing::random_spec(mesh, 2, false, random);
      repeated.push_back(fixed[i] ? *fixed[i] : layout::Spec(2));
    }
    const SpecCompletion completed(mesh, program, fixed), plain(mesh, program, repeated);
    for (size_t step = 0; step < program.steps().size(); ++step) {
      EXPECT_LE(completed.moves_of(step), plain.moves_of(step)) << "round " << round << ", op " << step;
    }
    for (size_t i = 0; i < fixed.size(); ++i) {
      if (fixed[i]) {
        EXPECT_EQ(completed.spec_of(i), *fixed[i]);
        continue;
      }
      cuts += completed.spec_of(i).cut() != 0 ? 1 : 0;
      taken_back += completed.why(i).find(" wants ") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GT(cuts, 150u);
  EXPECT_GT(taken_back, 20u);
}

}  // namespace
}  // namespace distag::spmd
