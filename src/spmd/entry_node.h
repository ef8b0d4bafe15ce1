#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "autograd/joint.h"
#include "spmd/nodes.h"
#include "spmd/stage_run.h"

namespace distag::spmd {

// A step of all members that the graph of each member alone leads gradients to, or the call of a pass itself. A pass of
// several workers enters the members' joint steps here.
class MeshEntry : public ShardedNode, public autograd::EntryNode {
 public:
  using ShardedNode::ShardedNode;

  const autograd::EntryNode* as_entry() const final { return this; }
  autograd::EntryName entry() const final { return {line().program->mesh().id(), call(), entry_name().line}; }
  std::vector<Incarnation> others() const final { return line().program->mesh().other_members(); }
  void forget(const Id& pass) const final { StageRun::forget(*line().program, pass); }
  std::shared_ptr<autograd::JointRun> begin(const Id& pass, bool retain_graph,
                                            std::vector<std::shared_ptr<autograd::Node>> entries,
                                            std::shared_ptr<const autograd::JointSaved> saved) const final {
    return std::make_shared<StageRun>(line().program, pass, retain_graph, std::move(entries), std::move(saved));
  }
};

// The saved data of a node that keeps nothing of the forward pass.
struct NothingSaved final : autograd::Node::SavedData {};

}  // namespace distag::spmd
