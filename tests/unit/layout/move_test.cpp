#include "layout/move.h"

#include <gtest/gtest.h>

#include <set>

#include "layout/spec_text.h"
#include "meshes.h"
#include "support/expect.h"

namespace distag::layout {
namespace {

using testing::below;
using testing::mesh_of;
using testing::mesh_sizes;
using testing::Random;
using testing::random_spec;

bool contains(const Box& outer, const Box& inner) { return inner.empty() || intersection(outer, inner) == inner; }

using Key = std::tuple<int64_t, int64_t, std::vector<int64_t>, std::vector<int64_t>>;
Key key_of(const Transfer& transfer) {
  const Box& box = transfer.box;
  return {transfer.from, transfer.to, {box.offset.begin(), box.offset.end()}, {box.extent.begin(), box.extent.end()}};
}

// Every element of a member's target comes once, from a member that holds it, with the same part of what stays a sum.
void check_transfers(const MeshShape& mesh, const Move& move, const Dims& shape) {
  std::set<Key> taken;
  std::set<Key> given;
  const Axes partial = axes_of(move.to().partial());
  for (int64_t position = 0; position < mesh.count(); ++position) {
    const Box target = box_of(mesh, move.to(), shape, position);
    int64_t elements = 0;
    int64_t received = 0;
    std::vector<Box> boxes;
    for (const Transfer& transfer : move.taken_by(position)) {
      ASSERT_EQ(transfer.to, position);
      ASSERT_FALSE(transfer.box.empty());
      ASSERT_TRUE(contains(target, transfer.box));
      ASSERT_TRUE(contains(box_of(mesh, move.after_sum(), shape, transfer.from), transfer.box));
      ASSERT_EQ(mesh.index_along(partial, transfer.from), mesh.index_along(partial, position));
      for (const Box& other : boxes) ASSERT_TRUE(intersection(other, transfer.box).empty());
      boxes.push_back(transfer.box);
      elements += transfer.box.count();
      if (transfer.from != position) received += transfer.box.count();
      ASSERT_TRUE(taken.insert(key_of(transfer)).second);
    }
    ASSERT_EQ(elements, target.count());
    ASSERT_EQ(received, move.received_in_move(position));
    ASSERT_TRUE(received == 0 || move.move() != MoveKind::kNothing);
    for (const Transfer& transfer : move.given_by(position)) ASSERT_TRUE(given.insert(key_of(transfer)).second);
  }
  ASSERT_EQ(taken, given);
}

TEST(Move, BringsEveryElementOnce) {
  Random random(3);
  for (const Dims& sizes : mesh_sizes()) {
    for (bool in_pairs : {false, true}) {
      std::vector<int64_t> granules;
      for (int64_t i = 0; in_pairs && i < element_count(sizes); ++i) granules.push_back(i / 2);
      const MeshShape mesh = mesh_of(sizes, granules);
      for (int i = 0; i < 2000; ++i) {
        const size_t rank = below(random, 4);
        Dims shape;
        for (size_t d = 0; d < rank; ++d) shape.push_back(static_cast<int64_t>(below(random, 10)));
        const Spec from = random_spec(mesh, rank, true, random);
        Spec to = random_spec(mesh, rank, true, random);
        to.set_partial(to.partial() & from.partial());
        SCOPED_TRACE(print_spec(mesh, from) + " -> " + print_spec(mesh, to) + " of " + to_string(shape));
        check_transfers(mesh, Move(mesh, shape, from, to), shape);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

struct Planned {
  const char* from;
  const char* to;
  SumKind sum;
  MoveKind move;
};

TEST(Move, AlignedCasesAreCollectives) {
  const MeshShape mesh = mesh_of({2, 3});
  using enum MoveKind;
  const Planned cases[] = {
      {"(x, None)", "(x, None)", SumKind::kNothing, kNothing},
      {"(None, None)", "(x, y)", SumKind::kNothing, kNothing},
      {"(x, None)", "((x, y), None)", SumKind::kNothing, kNothing},
      {"(x, y)", "(None, y)", SumKind::kNothing, kAllGather},
      {"(x, y)", "(None, None)", SumKind::kNothing, kAllGather},
      {"((x, y), None)", "(x, None)", SumKind::kNothing, kAllGather},
      {"((x, y), None)", "(y, None)", SumKind::kNothing, kBoxes},
      {"(x, None)", "(None, x)", SumKind::kNothing, kAllToAll},
      {"((y, x), None)", "(y, x)", SumKind::kNothing, kAllToAll},
      {"(x, None)", "(None, y)", SumKind::kNothing, kBoxes},
      {"((x, y), None)", "((y, x), None)", SumKind::kNothing, kBoxes},
      {"(None, None) sum(x)", "(None, None)", SumKind::kAllReduce, kNothing},
      {"(None, None) sum(x)", "(x, None)", SumKind::kReduceScatter, kNothing},
      {"(y, None) sum(x)", "((y, x), None)", SumKind::kReduceScatter, kNothing},
      {"(y, None) sum(x)", "((x, y), None)", SumKind::kAllReduce, kBoxes},
      {"(None, None) sum(x, y)", "(None, (y, x))", SumKind::kReduceScatter, kNothing},
      {"(None, None) sum(x, y)", "(x, y)", SumKind::kAllReduce, kNothing},
      {"(None, None) sum(x, y)", "(x, None) sum(y)", SumKind::kReduceScatter, kNothing},
      {"(y, None) sum(x)", "(x, None)", SumKind::kAllReduce, kBoxes},
  };
  for (const Planned& planned : cases) {
    const Move move(mesh, {12, 12}, parse_spec(mesh, planned.from, 2), parse_spec(mesh, planned.to, 2));
    EXPECT_EQ(move.sum(), planned.sum) << planned.from << " -> " << planned.to;
    EXPECT_EQ(move.move(), planned.move) << planned.from << " -> " << planned.to;
  }
}

// Blocks of a dim that two axes cut need not lie in those that one of them cuts.
TEST(Move, OfUnevenDimsIsNotAligned) {
  const MeshShape mesh = mesh_of({2, 2});
  const Spec one = parse_spec(mesh, "(x,)", 1);
  const Spec two = parse_spec(mesh, "((x, y),)", 1);
  EXPECT_EQ(Move(mesh, {8}, one, two).move(), MoveKind::kNothing);
  EXPECT_EQ(Move(mesh, {2}, one, two).move(), MoveKind::kBoxes);
  EXPECT_EQ(Move(mesh, {8}, two, one).move(), MoveKind::kAllGather);
  EXPECT_EQ(Move(mesh, {5}, two, one).move(), MoveKind::kBoxes);
  const Spec sum = parse_spec(mesh, "(x,) sum(y)", 1);
  EXPECT_EQ(Move(mesh, {8}, sum, two).sum(), SumKind::kReduceScatter);
  EXPECT_EQ(Move(mesh, {5}, sum, two).sum(), SumKind::kAllReduce);
}

TEST(Move, AxesOfSizeOneMoveNothing) {
  const MeshShape mesh = mesh_of({1, 3});
  EXPECT_TRUE(Move(mesh, {4, 4}, parse_spec(mesh, "(x, y)", 2), parse_spec(mesh, "(None, y)", 2)).is_identity());
  EXPECT_TRUE(Move(mesh, {4, 4}, parse_spec(mesh, "(None, None) sum(x)", 2), parse_spec(mesh, "(None, None)", 2))
                  .is_identity());
}

TEST(Move, MakesNoNewSum) {
  const MeshShape mesh = mesh_of({2, 3});
  EXPECT_EQ(
      testing::failure_of([&] { Move(mesh, {4}, parse_spec(mesh, "(x)", 1), parse_spec(mesh, "(x) sum(y)", 1)); }),
      "INVALID_ARGUMENT: mesh \"mesh\": a tensor as ('x',) cannot be made a sum over y: leave the sum out");
}

TEST(Move, CountsWhatAMemberReceives) {
  const MeshShape mesh = mesh_of({4});
  const Spec sum = parse_spec(mesh, "(None,) sum(x)", 1);
  EXPECT_EQ(Move(mesh, {100}, sum, parse_spec(mesh, "(None,)", 1)).received_in_sum(1), 150);
  EXPECT_EQ(Move(mesh, {100}, sum, parse_spec(mesh, "(x,)", 1)).received_in_sum(1), 75);
  const Move gather(mesh, {10}, parse_spec(mesh, "(x,)", 1), parse_spec(mesh, "(None,)", 1));
  EXPECT_EQ(gather.received_in_move(0), 7);
  EXPECT_EQ(gather.received_in_move(3), 9);
}

// Elements come from the receiver's granule where it has them, and from all members that have them in turn.
TEST(Move, PrefersTheOwnGranule) {
  const MeshShape mesh = mesh_of({2, 4}, {0, 0, 1, 1, 0, 0, 1, 1});
  const Move move(mesh, {4, 4}, parse_spec(mesh, "(x, None)", 2), parse_spec(mesh, "(None, y)", 2));
  for (int64_t position = 0; position < 8; ++position) {
    for (const Transfer& transfer : move.taken_by(position)) {
      EXPECT_EQ(mesh.granules()[static_cast<size_t>(transfer.from)], mesh.granules()[static_cast<size_t>(position)]);
    }
  }
  const MeshShape flat = mesh_of({2, 4});
  const Move spread(flat, {4, 4}, parse_spec(flat, "(x, None)", 2), parse_spec(flat, "(None, y)", 2));
  std::set<int64_t> givers;
  for (int64_t position = 0; position < 8; ++position) {
    for (const Transfer& transfer : spread.taken_by(position)) {
      if (transfer.from != position) givers.insert(transfer.from);
    }
  }
  EXPECT_EQ(givers.size(), 8u);
}

}  // namespace
}  // namespace distag::layout
