// Collectives of ops whose dims are merged where they are cut: exactly those of the table of ops, and no hidden move.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string_view>

#include "autograd/autograd.h"
#include "layout/traffic.h"
#include "ops/attributes.h"
#include "spmd/joint_context.h"
#include "spmd/marking.h"
#include "spmd/mesh_group.h"
#include "spmd/programs.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"
#include "support/expect.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

using ops::make_attributes;

constexpr int64_t kRows = 4;
constexpr int64_t kColumns = 7;  // uneven, and empty for some of eight members

struct Input {
  Tensor whole;
  const char* spec;
};

// Collectives of one direction, and numbers of 8 bytes that a member sends to each of the others.
struct Sent {
  uint64_t all_reduces = 0;
  uint64_t all_gathers = 0;
  uint64_t numbers = 0;
};

struct Case {
  const char* op;
  std::vector<Input> inputs;
  ops::Attributes attributes;
  Sent forward;
  Sent backward;
};

void expect_sent(const MeshStats& before, const MeshStats& after, const Sent& sent, uint64_t others) {
  EXPECT_EQ(after.all_reduces - before.all_reduces, sent.all_reduces);
  EXPECT_EQ(after.all_gathers - before.all_gathers, sent.all_gathers);
  EXPECT_EQ(after.bytes_sent - before.bytes_sent, sent.numbers * 8 * others);
  EXPECT_EQ(after.bytes_received - before.bytes_received, sent.numbers * 8 * others);
  EXPECT_EQ(after.reduce_scatters + after.all_to_alls + after.broadcasts + after.moves, 0u);
  EXPECT_EQ(after.hidden_moves, 0u);
}

// Inputs are leaves, or results of an op, which are moved less readily.
void run_case(Member& member, const Case& each, bool as_leaves, uint64_t others) {
  const Mesh& mesh = member.line.program->mesh();
  Tensors inputs;
  for (const Input& input : each.inputs) {
    Tensor tensor = input.whole.clone();
    spmd::mark_sharding(tensor, member.line, input.spec, -1);
    if (is_floating(tensor.dtype())) autograd::set_requires_grad(tensor, true);
    inputs.push_back(as_leaves || !is_floating(tensor.dtype()) ? tensor : apply("clone", {tensor}));
  }
  const auto context = spmd::make_joint_context(member.line, member.worker.dautograd());
  const MeshStats before = mesh.stats();
  const Tensor output = apply(each.op, inputs, each.attributes);
  const MeshStats forward = mesh.stats();
  expect_sent(before, forward, each.forward, others);
  if (!is_floating(output.dtype())) return;
  context->backward({apply("sum", {output})}, {});
  expect_sent(forward, mesh.stats(), each.backward, others);
}

void check(const Case& each, const Dims& sizes, uint64_t others, bool only_as_leaves = false) {
  for (const bool as_leaves : {true, false}) {
    if (!as_leaves && only_as_leaves) continue;
    SCOPED_TRACE(std::string(each.op) + " on " + to_string(sizes));
    MeshGroup group(sizes, refusing());
    group.run([&](Member& member) { run_case(member, each, as_leaves, others); });
  }
}

Tensor targets() { return tensor_of<int64_t>({kRows}, {6, 0, -100, 3}); }

std::vector<Case> cases() {
  constexpr uint64_t kN = kRows;
  const Input x{numbers({kRows, kColumns}, 1), "(None, 'x')"};
  const Input weight{numbers({kColumns}, 2), "('x',)"};
  const Input of_rows{targets(), "(None,)"};
  const Input index{tensor_of<int64_t>({3}, {1, 6, 1}), "(None,)"};
  const auto last = make_attributes({{"dims", Dims{1}}});
  return {
      {"softmax", {x}, {}, {2, 0, 2 * kN}, {1, 0, 3 * kN}},
      {"log_softmax", {x}, {}, {2, 0, 3 * kN}, {1, 0, kN}},
      {"logsumexp", {x}, last, {2, 0, 3 * kN}, {}},
      {"max", {x}, last, {1, 0, kN}, {1, 0, kN}},
      {"amin", {x}, last, {1, 0, kN}, {1, 0, kN}},
      {"max", {x}, {}, {1, 0, 1}, {1, 0, 1}},
      {"argmax", {x}, {}, {0, 1, 2 * kN}, {}},
      {"var", {x}, last, {0, 1, 3 * kN}, {}},
      {"layer_norm", {x, weight, weight}, {}, {0, 1, 3 * kN}, {1, 0, 2 * kN}},
      {"layer_norm", {x}, {}, {0, 1, 3 * kN}, {1, 0, 2 * kN}},
      {"cross_entropy", {x, of_rows}, {}, {2, 0, 4 * kN}, {}},
      {"cross_entropy", {x, of_rows}, make_attributes({{"reduction", "none"}}), {2, 0, 4 * kN}, {}},
      {"nll_loss", {x, of_rows}, {}, {1, 0, kN}, {}},
      {"embedding", {index, {numbers({7, 2}, 3), "('x', None)"}}, {}, {}, {}},
      {"index_select", {{numbers({7, 2}, 3), "('x', None)"}, index}, {}, {}, {}},
      {"index_select", {x, index}, make_attributes({{"dim", int64_t{1}}}), {}, {}},
      {"gather",
       {x, {tensor_of<int64_t>({2, 2}, {6, 0, 3, 3}), "(None, None)"}},
       make_attributes({{"dim", int64_t{1}}}),
       {},
       {}},
      {"dropout", {x}, make_attributes({{"seed", 3}}), {}, {}},
  };
}

TEST(MergedCounts, AreThoseOfTheTableOfOps) {
  for (const Case& each : cases()) {
    for (const int64_t members : {2, 3}) check(each, {members}, static_cast<uint64_t>(members) - 1);
    if (HasFailure()) return;
  }
}

// The weights of the classes are cut as the classes are: the weight of the target comes as one more number.
TEST(MergedCounts, WeightsOfClassesComeWithTheTargets) {
  const Input x{numbers({kRows, kColumns}, 1), "(None, 'x')"};
  for (const char* spec : {"(None,)", "('x',)"}) {
    const Tensors leaves{x.whole, targets(), numbers({kColumns}, 2)};
    MeshGroup group({2}, refusing());
    group.run([&](Member& member) {
      const Mesh& mesh = member.line.program->mesh();
      const Tensors inputs{leaves[0].clone(), leaves[1].clone(), leaves[2].clone()};
      const char* const specs[] = {x.spec, "(None,)", spec};
      for (size_t i = 0; i < inputs.size(); ++i) spmd::mark_sharding(inputs[i], member.line, specs[i], -1);
      apply("cross_entropy", inputs);
      expect_sent({}, mesh.stats(), {2, 0, 5 * kRows}, 1);
    });
  }
}

// Rows are cut by one axis, and values are merged along the other: half of the rows, over the members of a row of the
// mesh.
TEST(MergedCounts, AreOfTheOwnRowsAlone) {
  const Input x{numbers({kRows, kColumns}, 1), "('y', 'x')"};
  const uint64_t rows = kRows / 2;
  check({"softmax", {x}, {}, {2, 0, 2 * rows}, {1, 0, 3 * rows}}, {2, 2}, 1);
  check({"argmax", {x}, {}, {0, 1, 2 * rows}, {}}, {2, 2}, 1);
  // The gradients of the weights are summed over the rows, in one bucket.
  const Input even{numbers({kRows, 6}, 1), "('y', 'x')"};
  const Input weight{numbers({6}, 2), "('x',)"};
  const Input bias{numbers({6}, 3), "('x',)"};
  check({"layer_norm", {even, weight, bias}, {}, {0, 1, 3 * rows}, {2, 0, 2 * rows + 2 * 3}}, {2, 2}, 1, true);
  // If rows may be ignored, their total is one more number, from the members that have other rows.
  const auto ignoring = make_attributes({{"ignore_index", int64_t{-100}}});
  check({"cross_entropy", {x, {targets(), "('y',)"}}, ignoring, {3, 0, 4 * rows + 1}, {}}, {2, 2}, 1);
  const Tensor all = tensor_of<int64_t>({kRows}, {6, 0, 2, 3});
  check({"cross_entropy", {x, {all, "('y',)"}}, {}, {2, 0, 4 * rows}, {}}, {2, 2}, 1);
}

// With this many rows, merged values go in chunks of which each member adds up one.
TEST(MergedCounts, ManyRowsAreMergedInChunks) {
  constexpr int64_t kMany = 70000;
  static_assert(2 * kMany * 8 > layout::kMostDirectBytes);
  const Tensor whole = numbers({kMany, 4}, 1);
  const auto last = make_attributes({{"dims", Dims{1}}});
  for (const auto& [op, attributes] : {std::pair<const char*, ops::Attributes>{"softmax", {}},
                                       {"layer_norm", {}},
                                       {"argmax", {}},
                                       {"max", last},
                                       {"var", last}}) {
    SCOPED_TRACE(op);
    const Tensor expected = apply(op, {whole}, attributes);
    MeshGroup group({2}, refusing());
    group.run([&, name = op, &settings = attributes](Member& member) {
      const Tensor x = whole.clone();
      spmd::mark_sharding(x, member.line, "(None, 'x')", -1);
      const Tensor got = spmd::gather(apply(name, {x}, settings), -1);
      ASSERT_EQ(got.shape(), expected.shape());
      if (!is_floating(got.dtype())) {
        EXPECT_EQ(values_of<int64_t>(got), values_of<int64_t>(expected));
        return;
      }
      const auto left = values_of<double>(got);
      const auto right = values_of<double>(expected);
      for (size_t i = 0; i < left.size(); ++i) ASSERT_NEAR(left[i], right[i], 1e-12) << i;
    });
  }
}

// A dim that is whole is computed as on one process.
TEST(MergedCounts, NothingIsSentWhereTheDimIsWhole) {
  for (const char* op : {"softmax", "log_softmax", "layer_norm"}) {
    check({op, {{numbers({kRows, kColumns}, 1), "('x', None)"}}, {}, {}, {}}, {2}, 1);
  }
  for (const char* op : {"max", "var", "logsumexp"}) {
    check({op, {{numbers({kRows, kColumns}, 1), "('x', None)"}}, make_attributes({{"dims", Dims{1}}}), {}, {}}, {2}, 1);
  }
}

// A target beyond all classes, or an index beyond all rows, fails before anything is sent if all members see it alike;
// the mesh goes on.
TEST(MergedCounts, WhatIsBeyondAllClassesOrRowsEndsNothing) {
  MeshGroup group({2}, refusing());
  group.run([](Member& member) {
    const auto marked = [&](const Tensor& whole, const char* spec) {
      spmd::mark_sharding(whole, member.line, spec, -1);
      return whole;
    };
    const Tensor x = marked(numbers({2, kColumns}, 1), "(None, 'x')");
    const Tensor beyond = marked(tensor_of<int64_t>({2}, {1, kColumns}), "(None,)");
    const Tensor table = marked(numbers({kColumns, 2}, 2), "('x', None)");
    for (const char* op : {"cross_entropy", "nll_loss"}) {
      EXPECT_EQ(failure_of([&] {
                  apply(op, {x, beyond});
                }),
                "INVALID_ARGUMENT: " + std::string(op) + ": target 7 at row 1 is out of range [0, 7)");
    }
    EXPECT_EQ(failure_of([&] {
                apply("embedding", {beyond, table});
              }),
              "INVALID_ARGUMENT: embedding: index 7 out of range [0, 7)");
    // A whole index is alike on all members, although the tensor that it chooses from is cut, and has whole numbers.
    const Tensor chosen = marked(tensor_of<int64_t>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), "(None, 'x')");
    EXPECT_EQ(failure_of([&] {
                apply("index_add", {chosen, beyond, chosen});
              }),
              "INVALID_ARGUMENT: index_add: index 7 out of range [0, 2)");
    EXPECT_EQ(failure_of([&] {
                apply("index_select", {chosen, beyond});
              }),
              "INVALID_ARGUMENT: index_select: index 7 out of range [0, 2)");
    const Tensor none = marked(numbers({2, 0}, 1), "(None, 'x')");
    for (const char* op : {"max", "amin"}) {
      EXPECT_EQ(failure_of([&] {
                  apply(op, {none}, make_attributes({{"dims", Dims{1}}}));
                }),
                "INVALID_ARGUMENT: " + std::string(op) + ": float64[2, 0] has no elements to choose from");
    }
    EXPECT_EQ(failure_of([&] { apply("argmax", {none}); }),
              "INVALID_ARGUMENT: argmax: float64[2, 0] has no elements to choose from");
    const Tensor integers = marked(tensor_of<int64_t>({2, 2}, {1, 2, 3, 4}), "(None, 'x')");
    EXPECT_EQ(failure_of([&] { apply("var", {integers}); }).find("UNSUPPORTED: var"), 0u);
    EXPECT_EQ(failure_of([&] {
                apply("add_scalar", {integers}, make_attributes({{"value", 1.5}}));
              }).find("INVALID_ARGUMENT: add_scalar"),
              0u);
    EXPECT_EQ(failure_of([&] { apply("layer_norm", {integers}); }).find("UNSUPPORTED: layer_norm"), 0u);
    EXPECT_EQ(member.line.program->mesh().stats().all_reduces + member.line.program->mesh().stats().all_gathers, 0u);
    apply("softmax", {x});
    EXPECT_EQ(member.line.program->mesh().stats().all_reduces, 2u);
  });
}

// A setting that is not finite would spoil the results of all members, and everything computed from them.
TEST(MergedCounts, SettingsThatAreNotFiniteFailBeforeAnythingIsSent) {
  MeshGroup group({2}, refusing());
  group.run([](Member& member) {
    const Tensor x = numbers({2, kColumns}, 1);
    spmd::mark_sharding(x, member.line, "(None, 'x')", -1);
    const auto failure_with = [&x](const char* op, ops::Setting setting) {
      return failure_of([&] { apply(op, {x}, make_attributes({setting})); });
    };
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double number : {std::numeric_limits<double>::quiet_NaN(), infinity, -infinity}) {
      EXPECT_EQ(failure_with("var", {"correction", number}),
                fmt::format("INVALID_ARGUMENT: var: correction {} is not finite", number));
      EXPECT_EQ(failure_with("layer_norm", {"eps", number}),
                fmt::format("INVALID_ARGUMENT: layer_norm: eps {} is not finite", number));
    }
    EXPECT_EQ(failure_with("layer_norm", {"eps", -1.0}), "INVALID_ARGUMENT: layer_norm: eps -1 is not 0 or more");
    const MeshStats stats = member.line.program->mesh().stats();
    EXPECT_EQ(stats.all_reduces + stats.all_gathers, 0u);
    apply("layer_norm", {x});
    EXPECT_GT(member.line.program->mesh().stats().all_reduces + member.line.program->mesh().stats().all_gathers, 0u);
  });
}

// If only some members have a bad index, it fails there, before anything is sent, and ends the mesh with that failure.
TEST(MergedCounts, WhatSomeMembersAloneHaveBeyondATableEndsTheMesh) {
  for (const char* op : {"embedding", "cross_entropy", "nll_loss"}) {
    SCOPED_TRACE(op);
    const bool is_loss = op != std::string("embedding");
    MeshGroup group({2, 2});
    std::vector<std::string> failures(group.size());
    const auto errors = group.try_run([&](Member& member) {
      const Tensor index = tensor_of<int64_t>({2}, {1, 99});
      const Tensor table = numbers(is_loss ? Dims{2, kColumns} : Dims{kColumns, 2}, 2);
      spmd::mark_sharding(index, member.line, "('x',)", -1);
      spmd::mark_sharding(table, member.line, is_loss ? "('x', 'y')" : "('y', None)", -1);
      const Tensors inputs = is_loss ? Tensors{table, index} : Tensors{index, table};
      if (member.position() >= 2) {
        failures[static_cast<size_t>(member.position())] = failure_of([&] { apply(op, inputs); });
      } else {
        apply(op, inputs);
      }
      spmd::Sharding::of(table)->sum_over_members(1, 0);
    });
    // The second failing member may hear of the end before it comes to its call.
    EXPECT_FALSE(failures[2].empty() && failures[3].empty());
    for (size_t i : {size_t{2}, size_t{3}}) {
      EXPECT_TRUE(failures[i].empty() || failures[i].find("INVALID_ARGUMENT: ") == 0) << failures[i];
    }
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->status(), Status::kInvalidArgument) << error->what();
      EXPECT_NE(std::string(error->what()).find("99 "), std::string::npos) << error->what();
      EXPECT_GE(error->origin_rank(), 2);
    }
  }
}

// The same for each op that chooses by whole numbers, where the bad index is in the part of one member.
TEST(MergedCounts, AnIndexInThePartOfOneMemberEndsTheMesh) {
  struct Chooser {
    const char* op;
    size_t index;  // the input that chooses
    std::vector<Tensor> inputs;
    std::vector<const char*> specs;
    ops::Attributes attributes;
  };
  const auto wholes = [](const Dims& shape) { return tensor_of<int64_t>(shape, {1, 0, 2, 99, 1, 3}); };
  const auto choosers = [&] {
    return std::vector<Chooser>{{"one_hot", 0, {wholes({6})}, {"('x',)"}, make_attributes({{"num_classes", 4}})},
                                {"embedding", 0, {wholes({6}), numbers({4, 2}, 1)}, {"('x',)", "(None, None)"}, {}},
                                {"index_select", 1, {numbers({4, 2}, 1), wholes({6})}, {"(None, None)", "('x',)"}, {}},
                                {"gather",
                                 1,
                                 {numbers({6, 4}, 1), wholes({6, 1})},
                                 {"('x', None)", "('x', None)"},
                                 make_attributes({{"dim", 1}})},
                                {"scatter_add",
                                 1,
                                 {numbers({6, 4}, 1), wholes({6, 1}), numbers({6, 1}, 2)},
                                 {"('x', None)", "('x', None)", "('x', None)"},
                                 make_attributes({{"dim", 1}})},
                                {"cross_entropy", 1, {numbers({6, 4}, 1), wholes({6})}, {"('x', None)", "('x',)"}, {}},
                                {"nll_loss", 1, {numbers({6, 4}, 1), wholes({6})}, {"('x', None)", "('x',)"}, {}}};
  };
  std::set<std::string> tried;
  for (size_t which = 0; which < choosers().size(); ++which) {
    const Chooser chooser = choosers()[which];
    SCOPED_TRACE(chooser.op);
    tried.insert(chooser.op);
    MeshGroup group({3});
    const auto errors = group.try_run([&](Member& member) {
      Chooser own = choosers()[which];
      for (size_t i = 0; i < own.inputs.size(); ++i) spmd::mark_sharding(own.inputs[i], member.line, own.specs[i], -1);
      apply(own.op, own.inputs, own.attributes);
      // Members whose parts are right go on, and then get the error.
      spmd::Sharding::of(own.inputs[chooser.index])->sum_over_members(1, 0);
    });
    for (size_t i = 0; i < errors.size(); ++i) {
      ASSERT_TRUE(errors[i]);
      EXPECT_EQ(errors[i]->status(), Status::kInvalidArgument) << errors[i]->what();
      EXPECT_NE(std::string(errors[i]->what()).find("99 "), std::string::npos) << errors[i]->what();
      EXPECT_EQ(errors[i]->origin_rank(), i == 1 ? -1 : 1) << "the member itself fails in its call";
    }
  }
  for (const ops::Op* const op : ops::builtins()) {
    const bool has_index = std::string_view(op->signature).find("tensor index") != std::string_view::npos;
    // The dim along which index_add chooses is whole: all members have all of the index.
    EXPECT_TRUE(!has_index || tried.contains(op->name) || op->name == std::string("index_add")) << op->signature;
  }
}

// Collectives inside of an op are compared like all others: no member waits for a member that is not in the op.
TEST(MergedCounts, MembersThatAreNotInTheSameOpHearOfIt) {
  MeshGroup group({3});
  const auto errors = group.try_run([](Member& member) {
    const Tensor x = numbers({2, kColumns}, 1);
    spmd::mark_sharding(x, member.line, "(None, 'x')", -1);
    // A plain target counts as repeated: only one member has a target beyond all classes.
    const Tensor target = tensor_of<int64_t>({2}, {1, member.position() == 1 ? kColumns : 2});
    apply("cross_entropy", {x, target});
  });
  for (size_t i = 0; i < errors.size(); ++i) {
    ASSERT_TRUE(errors[i]);
    const std::string text = errors[i]->what();
    if (i == 1) {
      // The end that the others declare may come before its own error.
      EXPECT_TRUE(errors[i]->status() == Status::kInvalidArgument || errors[i]->status() == Status::kDiverged) << text;
    } else {
      EXPECT_EQ(errors[i]->status(), Status::kDiverged) << text;
      EXPECT_NE(text.find("target 7 at row 1 is out of range [0, 7)"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace distag::testing
