// Boxes that go in several pieces, along each dim: every element reaches its place, and few pieces are held at once.
#include <gtest/gtest.h>

#include "coll/move_boxes.h"
#include "spmd/marking.h"
#include "spmd/mesh_group.h"
#include "spmd/sharding.h"
#include "spmd/tensors.h"

namespace distag::testing {
namespace {

Tensor counted(const Dims& shape) {
  Tensor x = Tensor::empty(Dtype::kFloat64, shape);
  auto* next = x.mutable_data_as<double>();
  for (int64_t i = 0; i < x.count(); ++i) next[i] = static_cast<double>(i);
  return x;
}

// The number of elements of a shard that differ from the numbers of its box.
int64_t wrong_in(const Tensor& sharded, const Member& member) {
  const spmd::Lying lying = spmd::Sharding::of(sharded)->lying();
  const layout::Box box = box_of(member.mesh(), lying.spec, sharded.shape(), member.position());
  const Tensor shard = lying.shard.contiguous();
  const auto* found = shard.data_as<double>();
  Dims at = box.offset;
  int64_t wrong = shard.shape() == box.extent ? 0 : 1;
  for (int64_t i = 0; i < shard.count(); ++i) {
    int64_t number = 0;
    for (size_t d = 0; d < at.size(); ++d) number = number * sharded.shape()[d] + at[d];
    wrong += found[i] != static_cast<double>(number);
    for (size_t d = at.size(); d-- > 0;) {
      if (++at[d] < box.offset[d] + box.extent[d]) break;
      at[d] = box.offset[d];
    }
  }
  return wrong;
}

void check_moves(const Dims& mesh, const Dims& shape, const std::vector<std::string>& specs) {
  MeshGroup group(mesh);
  group.run([&](Member& member) {
    Tensor x = counted(shape);
    spmd::mark_sharding(x, member.line, specs[0], -1);
    for (size_t i = 1; i < specs.size(); ++i) {
      x = spmd::redistribute(x, specs[i], {});
      EXPECT_EQ(wrong_in(x, member), 0) << specs[i - 1] << " -> " << specs[i];
    }
  });
  for (size_t rank = 0; rank < group.size(); ++rank) {
    const auto held = static_cast<int64_t>(static_cast<uint64_t>(group.stats(rank).bytes_held_max));
    EXPECT_LE(held, kMoveRound);
    EXPECT_EQ(static_cast<uint64_t>(group.stats(rank).bytes_held), 0U);
  }
}

TEST(LargeMoves, OfRowsAndColumns) {
  check_moves({3}, {1031, 4099}, {"('x', None)", "(None, 'x')", "(None, None)", "(None, 'x')", "('x', None)"});
}

TEST(LargeMoves, OfInnerDims) {
  check_moves({2}, {2, 3, 700'001},
              {"(None, None, 'x')", "('x', None, None)", "(None, 'x', None)", "(None, None, None)"});
}

TEST(LargeMoves, OverTwoAxes) {
  check_moves({2, 2}, {4'194'307}, {"(('x', 'y'),)", "(('y', 'x'),)", "('y',)", "('x',)", "(None,)"});
}

}  // namespace
}  // namespace distag::testing
