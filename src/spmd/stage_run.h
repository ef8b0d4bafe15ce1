#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "autograd/joint.h"
#include "base/mutex.h"
#include "spmd/joint_pass.h"

namespace distag::spmd {

// The part of one mesh in a pass of an ordinary context: the steps behind parts that functions on its members returned.
// They make their collectives on a line of the mesh that belongs to this pass alone, so passes do not wait for each
// other.
class StageRun final : public autograd::JointRun, JointPass::Outside {
 public:
  StageRun(std::shared_ptr<Program> program, const Id& pass, bool retain_graph,
           std::vector<std::shared_ptr<autograd::Node>> entries, std::shared_ptr<const autograd::JointSaved> saved);

  std::vector<Gradients::Entry> run(const Leave& leave) override;
  std::optional<Incarnation> enter(const autograd::Node& entry, Tensor gradient) override;
  void enter_elsewhere(const autograd::Node& entry, Incarnation member) override;
  void cancel() noexcept override;

  // Called for a pass that has ended before a run was made.
  static void forget(Program& program, const Id& pass);

 private:
  void check() const override;
  std::shared_ptr<autograd::Node::SavedData> saved_of(const autograd::Node& node) const override;
  Tensor await_entry(const autograd::Node& entry) override;
  size_t await_first(const std::vector<const autograd::Node*>& entries) override;
  void leave(std::vector<autograd::Edge> edges, Tensors gradients) override;

  struct Awaited {
    std::shared_ptr<Future<Tensor>> gradient;
    std::set<Incarnation> elsewhere;  // the members that have yet to report theirs; empty on those that get no report
  };
  void note_if_everywhere(const autograd::Node& entry, const Awaited& awaited);

  const Line line_;
  const bool retain_graph_;
  const Error over_;
  const std::shared_ptr<const autograd::JointSaved> saved_;
  Mesh::LineEnd line_end_;            // on the loop
  std::atomic<bool> is_over_{false};  // for this member
  const std::vector<std::shared_ptr<autograd::Node>> entries_;
  const bool has_several_lines_;
  std::map<const autograd::Node*, Awaited> awaited_;  // by entry
  const Leave* leave_ = nullptr;                      // while the run is under way
  // On the member that chooses the line.
  Mutex mutex_;
  std::vector<const autograd::Node*> everywhere_ GUARDED_BY(mutex_);  // entries whose gradients are on all members
  std::shared_ptr<Future<Unit>> more_ GUARDED_BY(mutex_);             // set while it waits for one more
};

}  // namespace distag::spmd
