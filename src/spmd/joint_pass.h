#pragma once

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "autograd/node_index.h"
#include "spmd/gradient_claims.h"
#include "spmd/leaf_gradients.h"
#include "spmd/nodes.h"

namespace distag::spmd {

// A backward pass of all members of a mesh, on the thread that calls it. All members make the steps of sharded nodes,
// and the gradients of sharded leaves, in one order, which follows from the graph: a step is ready once all its
// consumers have run; steps of leaves go first, then others by their forward call, the latest first. Steps of this
// worker alone run in between. If one of these fails, the pass goes on, so that no member waits for this one, and fails
// at the end.
//
// Steps that wait for gradients from outside run when no other step can, those of one line the latest first: later
// entries may depend on earlier ones. If several lines have such steps, the first member chooses one.
class JointPass {
 public:
  using CheckStop = std::function<void()>;  // throws to fail the pass

  // The pass of several workers that this is part of; this makes the joint steps only.
  class Outside {
   public:
    virtual ~Outside() = default;
    // Throws once the pass is over.
    virtual void check() const = 0;
    // The saved data that the pass holds since its walks.
    virtual std::shared_ptr<autograd::Node::SavedData> saved_of(const autograd::Node& node) const = 0;
    // Waits for the gradient; undefined: zero.
    virtual Tensor await_entry(const autograd::Node& entry) = 0;
    // On the first member: waits until one of these entries has its gradients on all members, and gives its index.
    virtual size_t await_first(const std::vector<const autograd::Node*>& entries) = 0;
    // Gives one gradient for each edge that leads out; undefined if none came.
    virtual void leave(std::vector<autograd::Edge> edges, Tensors gradients) = 0;
  };

  JointPass(CallOnLine& call, CheckStop check_stop)
      : call_(call), check_stop_(std::move(check_stop)), gradients_(call) {}
  JointPass(CallOnLine& call, Outside* outside) : call_(call), outside_(outside), gradients_(call) {}

  // Throws GRAPH_FREED. Methods that send throw the error of the mesh if that has ended.
  void walk(const std::vector<autograd::Edge>& roots);
  void walk_from(const std::vector<std::shared_ptr<autograd::Node>>& entries);
  // The entries that the walk has reached, ascending. reach_entries() adds others, from which the pass goes on with
  // zeros; throws INVALID_STATE if one is gone.
  std::vector<EntryName> entries() const;
  void reach_entries(const std::vector<EntryName>& names);
  // Whether a walk has met a value of another worker: then this pass cannot run.
  bool reaches_others() const { return reaches_others_; }
  // A hash of the steps that all members make.
  uint64_t plan_hash() const { return plan_hash_; }
  uint32_t joint_steps() const { return joint_steps_; }

  void run(const std::vector<autograd::Edge>& roots, const Tensors& seeds);
  // The first failure of a step of this worker alone.
  const std::optional<Error>& failure() const { return failure_; }
  std::vector<Gradients::Entry> take_gradients() { return gradients_.take(); }
  void free_saved();

 private:
  // The name of a step on all members, which orders steps. Steps of leaves come first, so that no gradient waits for
  // the end of the pass; then the last call, and within a call its hooks, then its node. Steps with equal names, as of
  // two leaves made from one tensor, come in the order in which they became ready.
  struct Key {
    bool is_of_leaf = false;
    uint64_t call = 0;
    std::string line;
    uint32_t output = 0;  // of the call's results
    int rank = 0;
    bool operator<(const Key& other) const {
      return std::tie(is_of_leaf, call, line, output, rank) <
             std::tie(other.is_of_leaf, other.call, other.line, other.output, other.rank);
    }
  };
  struct Visit {
    std::shared_ptr<autograd::Node> node;
    std::shared_ptr<autograd::Node::SavedData> saved;
    std::vector<Tensors> arrivals;              // by slot, in the planned order of the steps that gave them
    std::vector<std::vector<uint32_t>> places;  // of those steps
    uint32_t waiting = 0;
    uint32_t place = 0;      // in the planned order; 0: the roots
    std::optional<Key> key;  // for a step of all members
  };

  static Key key_of_leaf(const Sharding& leaf, int rank);
  uint32_t visit(const std::shared_ptr<autograd::Node>& node);
  bool leads_out(const autograd::Edge& edge) const;
  void reach(const autograd::Edge& edge);
  void walk_on();
  void plan();
  using Choose = std::function<size_t(const std::vector<uint32_t>& entries)>;
  void go_through(const Choose& choose, const std::function<void(uint32_t number)>& step) const;
  bool awaits_outside(const Visit& visit) const;
  size_t choose_line(const std::vector<uint32_t>& entries);
  void run_step(uint32_t number);
  void run_sharded(Visit& step, ShardedNode& node);
  void run_alone(Visit& step);
  void run_hook(Visit& step);
  void run_leaf(Visit& step);
  Tensor meet_at(const autograd::Edge& target, const Tensors& arrivals);
  void pass_on(const autograd::Node& node, Tensors gradients);
  void deliver(const autograd::Edge& edge, Tensor gradient, uint32_t place);

  CallOnLine& call_;
  const CheckStop check_stop_ = nullptr;
  Outside* const outside_ = nullptr;
  std::vector<Visit> visits_;
  autograd::NodeIndex index_;
  std::vector<uint32_t> unexpanded_;
  uint64_t plan_hash_ = 0;
  uint32_t joint_steps_ = 0;
  bool reaches_others_ = false;
  uint32_t place_ = 0;  // of the current step
  std::optional<Error> failure_;
  GradientClaims claims_;
  LeafGradients gradients_;
};

}  // namespace distag::spmd
