#pragma once

#include "layout/placement.h"
#include "ops/op.h"

namespace distag::testing {

// A tensor cut over the members of a mesh: its shards lie side by side, by position.
struct Sharded {
  Dims shape;
  layout::Spec spec;
  Tensors shards;
};

// An application of an op by all members, and the state that backward needs.
struct Applied {
  layout::Placement placement;
  std::vector<Sharded> outputs;
  bool is_on_parts = false;  // the op differs from that on the whole

  // The gradients of the inputs (no shards for an input without one), from those of the outputs in the duals.
  std::function<std::vector<Sharded>(const std::vector<Sharded>& gradients)> backward;
};

// All members in one process: collectives are functions of lists. If members merge values inside of an op, each has a
// thread.
class SimulatedMesh {
 public:
  explicit SimulatedMesh(layout::MeshShape shape) : shape_(std::move(shape)) {}

  const layout::MeshShape& shape() const { return shape_; }

  // The shards of a tensor. The parts of a sum differ from each other, and add up to exactly its values.
  Sharded cut(const Tensor& whole, const layout::Spec& spec) const;
  // The tensor that shards make up. Fails the test if a shard has another shape than its box, or if members with the
  // same box have different bits.
  Tensor whole(const Sharded& x) const;
  Sharded redistribute(const Sharded& x, const layout::Spec& to) const;

  // The four steps of an op on sharded tensors. Inputs that are left out have no shards.
  Applied apply(const std::string& op, const std::vector<Sharded>& inputs, const ops::Attributes& attributes,
                const std::vector<bool>& are_parameters = {}) const;
  // The sum of gradients of one tensor, brought to the dual of its spec once.
  Sharded meet(const layout::Spec& own, const std::vector<Sharded>& arrivals) const;

 private:
  Sharded summed(const Sharded& x, const layout::Move& move) const;

  layout::MeshShape shape_;
};

Tensor box_of_tensor(const Tensor& whole, const layout::Box& box);
// Each number within 1e-12 of the largest of them, and NaN in the same places; for other dtypes the same bits.
void expect_close(const Tensor& got, const Tensor& expected);

}  // namespace distag::testing
