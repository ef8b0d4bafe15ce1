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

// Names, alike on all members of a mesh, a call that made a plain tensor of a part of a sharded one. There the
// gradients of one member's own graph enter the steps that all members make.
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
  // Takes the gradients that leave the joint steps, for nodes of this worker alone; undefined ones too. On the thread
  // of run().
  using Leave = std::function<void(std::vector<Edge> edges, Tensors gradients)>;

  virtual ~JointRun() = default;
  // Runs the steps; waits for other members and for entries. Throws what a step throws, or why it was cancelled. Once.
  virtual std::vector<Gradients::Entry> run(const Leave& leave) = 0;
  // The gradient of an entry has arrived, or is zero. Returns the member that has to be told, if there is one. On the
  // loop, like all functions below.
  virtual std::optional<Incarnation> enter(const Node& entry, Tensor gradient) = 0;
  // The gradient of an entry has arrived on another member. Repeated calls do nothing.
  virtual void enter_elsewhere(const Node& entry, Incarnation member) = 0;
  // The pass is over for this worker: nothing of it waits here any more, and its later messages are dropped. Repeated
  // calls do nothing. Needs no memory.
  virtual void cancel() noexcept = 0;
};

// A node whose step all members of a mesh make, and whose gradient comes from this worker's own graph.
class EntryNode {
 public:
  virtual ~EntryNode() = default;
  virtual EntryName entry() const = 0;
  // The other members of the mesh, by position.
  virtual std::vector<Incarnation> others() const = 0;
  // A pass is over for this worker before its joint steps have begun: later messages of those are dropped.
  virtual void forget(const Id& pass) const = 0;
  // Begins the steps of a pass behind these entries of its mesh.
  virtual std::shared_ptr<JointRun> begin(const Id& pass, bool retain_graph, std::vector<std::shared_ptr<Node>> entries,
                                          std::shared_ptr<const JointSaved> saved) const = 0;
};

}  // namespace distag::autograd
