#pragma once

#include <optional>
#include <vector>

#include "autograd/node.h"
#include "spmd/sharding.h"

namespace distag::spmd {

// A step of a graph of whole tensors, whose gradients are sharded tensors. All members of the mesh run it, in the same
// order, in a joint pass.
class ShardedNode : public autograd::Node {
 public:
  // A forward output, and how its gradient is wanted. `as_it_comes`: they are only added.
  struct Output {
    Dims shape;
    layout::Spec wanted;
    bool as_it_comes = false;
  };

  ShardedNode(Line line, uint64_t call, std::vector<autograd::Edge> next, std::vector<Output> outputs)
      : Node(Kind::kFunction, std::move(next), static_cast<uint32_t>(outputs.size())),
        line_(std::move(line)),
        call_(call),
        outputs_(std::move(outputs)) {
    open_origins();
  }

  const Line& line() const { return line_; }
  uint64_t call() const { return call_; }
  EntryName entry_name() const { return {call_, Fingerprint().add(line_.name).value()}; }
  const Output& output(size_t slot) const { return outputs_[slot]; }
  bool is_joint() const override { return true; }
  // Whether the node gets a plain tensor as its gradient, from the graph of this worker alone.
  bool is_entry() const { return as_entry() != nullptr; }
  // For an entry: the axes along which members claim to bring the same gradient.
  virtual layout::AxisSet repeated() const { return 0; }

  // The gradient of each input, from those of the outputs, which are sharded as wanted. Collective, in the call given.
  virtual Tensors run(SavedData& saved, Tensors gradients, CallOnLine& call) = 0;

  // Called in a pass of this worker alone. Throws INVALID_STATE.
  Tensors backward(SavedData& saved, Tensors gradients) override;

 private:
  const Line line_;
  const uint64_t call_;
  const std::vector<Output> outputs_;
};

// Edges for the gradients of these tensors; empty for a tensor that is not recorded or needs no gradient.
std::vector<autograd::Edge> edges_of(std::span<const Tensor> inputs);

// Adds the gradients of one output or leaf, in the order given, and brings the sum to `target`. `own`: the spec of the
// output or leaf itself. `as_it_comes`: the sum stays where the gradients met.
Tensor meet(CallOnLine& call, const Dims& shape, const layout::Spec& own, const layout::Spec& target,
            std::span<const Tensor> arrivals, bool as_it_comes);

}  // namespace distag::spmd
