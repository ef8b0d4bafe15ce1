#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dautograd/dautograd_shared.h"
#include "dautograd/distributed_context.h"
#include "dautograd/joint_steps.h"
#include "dautograd/part_state.h"
#include "dautograd/pass_grads.h"
#include "dautograd/pass_graph.h"
#include "dautograd/pass_info.h"
#include "dautograd/pass_reach.h"
#include "dautograd/pass_way.h"

namespace distag {

// The part that one pass has on one worker: how it finds out what it reaches (PassWay), the gradients from and to peers
// (PassGrads), the steps that members of a mesh make together (JointSteps), and the staging of what leaves get.
// On the loop; the graph belongs to a PassGraph. Ended by commit() or drop(), exactly once; nothing is reported after
// that.
class LocalPass final : public std::enable_shared_from_this<LocalPass>, public PassGrads::Owner, PassGraph::Owner {
 public:
  // `task` may have walked from the roots already.
  LocalPass(DautogradShared& shared, std::shared_ptr<DistributedContext> context, PassInfo info,
            std::shared_ptr<autograd::GraphTask> task);
  ~LocalPass() override;
  LocalPass(const LocalPass&) = delete;
  LocalPass& operator=(const LocalPass&) = delete;

  // Checks that a recv that a walk meets is of this context. Any thread.
  static autograd::GraphWalk::CheckRecv make_recv_check(const ContextRecord& context);

  PartState& state() { return state_; }
  const PartState& state() const { return state_; }
  PassWay& way() { return *way_; }
  const PassWay& way() const { return *way_; }
  const PassGrads& grads() const { return grads_; }
  const PassInfo& info() const { return info_; }

  // At the initiator, when its walk from the roots has led to a plan: follows the part of this worker.
  void follow_plan(const std::vector<wire::PairBits>& sends, uint64_t check);
  // At the initiator, once it is known what the roots depend on.
  void run_roots(std::vector<autograd::Edge> roots, Tensors seeds);

  // Throw Violation for what their sender may not send, and any other Error for what cannot be done here.
  void on_grad(const Peer& from, wire::Grad& grad);
  Heard on_go();
  Heard on_entered(const Peer& from, const wire::EntryName& entry);
  void on_gone(Incarnation peer, const Error& error);

  // Whether nothing moves here; and, for reports, the calls that wait for a gradient.
  bool is_idle() const { return graph_->is_idle() && grads_.are_numbered(); }
  std::vector<std::string> waiting_calls() const;  // only when idle
  // The pairs that its GRADs have made, once it is done; nullptr before, and if gradients have no history.
  GradientPairs* ready_pairs() const { return state_.is_done() ? grads_.pairs() : nullptr; }
  // The work that this part does, and the workers, tasks and gradients that it waits for.
  std::vector<std::string> waits_for() const;
  std::set<Incarnation> take_peers() { return reach_.take_peers(); }  // before its end

  // The context ends: reports that, and is over.
  void end(const Error& why);
  // Something about the part failed here, whatever it has reported.
  void fail_here(const Error& error);
  void commit();
  void commit_if_done();  // for a pass of another initiator
  void drop(Status why);
  // This worker has lost the initiator. A worker that waits for an answer from here may still reach it, and pass the
  // error on.
  void lose_initiator(const Error& error);

 private:
  // PassGraph::Owner, PassGrads::Owner
  void on_worked(const std::optional<Id>& walk, PassGraph::Outcome outcome) override;
  void report_if_done(wire::Grad* last) override;

  void take_outcome(const std::optional<Id>& walk, PassGraph::Outcome outcome);
  PassWay::Part rest();
  std::unique_ptr<PassWay> make_way();
  void close(bool frees_graph);

  DautogradShared& shared_;
  const std::shared_ptr<DistributedContext> context_;
  const PassInfo info_;
  const std::shared_ptr<PassGraph> graph_;
  PartState state_;
  PassGrads grads_;
  PassReach reach_;
  JointSteps joint_;
  std::unique_ptr<PassWay> way_;

  bool is_finished_ = false;
  std::vector<Gradients::Entry> staged_;
};

}  // namespace distag
