#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "autograd/context.h"
#include "autograd/node.h"
#include "base/ids.h"

namespace distag::autograd {

// A call by which a part of a sharded tensor became a plain one, as all members of its mesh name it: where gradients of
// one member's own graph come into the steps that all of them make.
struct EntryName {
  Id mesh;
  uint64_t call = 0;
  uint64_t line = 0;  // a hash of its name
  auto operator<=>(const EntryName&) const = default;
};

// The saved data of joint nodes, as a pass has held it since its walks.
using JointSaved = std::unordered_map<const Node*, std::shared_ptr<Node::SavedData>>;

// The steps of one pass that all members of a mesh make together, behind entries that are the same on all of them.
class JointRun {
 public:
  // The gradients that leave the joint steps, for nodes of this worker alone; undefined ones too. On the thread of
  // run().
  using Leave = std::function<void(std::vector<Edge> edges, Tensors gradients)>;

  virtual ~JointRun() = default;
  // Waits for others, and for entries. Throws what any step throws, or why it was cancelled. Once.
  virtual std::vector<Gradients::Entry> run(const Leave& leave) = 0;
  // The gradient of an entry is there, or is zero. On the loop, as all that follow. The member that is to be told so,
  // if there is one.
  virtual std::optional<Incarnation> enter(const Node& entry, Tensor gradient) = 0;
  // It is there on another member. Again: nothing more.
  virtual void enter_elsewhere(const Node& entry, Incarnation member) = 0;
  // The pass is over for this worker: nothing of it waits here any more, and messages of it that come later are
  // dropped. Again: nothing more. Needs no memory.
  virtual void cancel() noexcept = 0;
};

// A node whose step all members of a mesh make that has a gradient of this worker's own graph.
class EntryNode {
 public:
  virtual ~EntryNode() = default;
  virtual EntryName entry() const = 0;
  // The other members of the mesh, by position.
  virtual std::vector<Incarnation> others() const = 0;
  // A pass is over for this worker before its joint steps have begun: messages of them that come later are dropped.
  virtual void forget(const Id& pass) const = 0;
  // The steps behind these entries of its mesh, in a pass.
  virtual std::shared_ptr<JointRun> begin(const Id& pass, bool retain_graph, std::vector<std::shared_ptr<Node>> entries,
                                          std::shared_ptr<const JointSaved> saved) const = 0;
};

}  // namespace distag::autograd
