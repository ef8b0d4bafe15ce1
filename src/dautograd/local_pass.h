#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dautograd/discovery.h"
#include "dautograd/distributed_context.h"
#include "dautograd/expectation.h"
#include "dautograd/joint_steps.h"
#include "dautograd/part_state.h"
#include "dautograd/pass_grads.h"
#include "dautograd/pass_graph.h"
#include "dautograd/pass_info.h"
#include "dautograd/pass_reach.h"
#include "dautograd/shared.h"

namespace distag {

// The part that one pass has on one worker: the gradients from and to peers, and the staging of what leaves get. A
// SMART pass begins with a Discovery and runs once that is over, which another worker's part notices by its first GRAD;
// a planned one with an Expectation.
// On the loop; the graph belongs to a PassGraph. Ended by commit() or drop(), exactly once; nothing is reported after
// that.
class LocalPass final : public std::enable_shared_from_this<LocalPass>,
                        PassGraph::Owner,
                        public PassGrads::Owner,
                        Discovery::Owner {
 public:
  // `task` may have walked from the roots already.
  LocalPass(DautogradShared& shared, std::shared_ptr<DistributedContext> context, PassInfo info,
            std::shared_ptr<autograd::GraphTask> task);
  ~LocalPass() override;
  LocalPass(const LocalPass&) = delete;
  LocalPass& operator=(const LocalPass&) = delete;

  // A walk meets a recv: it has to be of this context. Any thread.
  static autograd::GraphTask::CheckRecv make_recv_check(const ContextRecord& context);

  PartState& state() { return state_; }
  const PartState& state() const { return state_; }
  const PassGrads& grads() const { return grads_; }
  const PassInfo& info() const { return info_; }

  // The initiator's: walks from the roots (or goes on where a walk has reached), and when all is planned runs them.
  void expand_roots(std::vector<autograd::Edge> roots);
  void go_on_from(std::vector<autograd::GraphTask::Reached> reached,
                  std::vector<std::shared_ptr<autograd::Node>> entries);
  void run_roots(std::vector<autograd::Edge> roots, Tensors seeds);

  // Of a planned pass: the gradients of these sends will come. Walks, and checks, before any of them is delivered.
  void follow_plan(const std::vector<wire::PairBits>& sends, uint64_t check);
  void on_expect(const Peer& from, const wire::Expect& expect);  // throws as below
  // It has failed because the plan did not hold here.
  bool is_misplanned() const { return is_misplanned_; }

  // Throw Violation for what their sender may not say, and any other Error for what cannot be done here.
  void on_discover(const Peer& from, const wire::Discover& discover);
  Heard on_discovered(const Peer& from, const wire::Discovered& discovered);
  void on_grad(const Peer& from, wire::Grad& grad);
  Heard on_go();
  Heard on_entered(const Peer& from, const wire::EntryName& entry);
  // FAST: all sends recorded so far are live, and the roots with them.
  void take_all_sends(std::vector<autograd::Edge> roots);
  void on_gone(Incarnation peer, const Error& error);

  // Of those that wait for a gradient, for reports.
  bool is_idle() const { return graph_->is_idle() && grads_.are_numbered(); }
  std::vector<std::string> waiting_calls() const;  // only when idle
  // The pairs that its GRADs have made, once it is done; nullptr before, and where gradients have no history.
  GradientPairs* ready_pairs() const { return state_.is_done() ? grads_.pairs() : nullptr; }
  // The work that this part does, and the workers, tasks and gradients that it waits for.
  bool is_searching() const { return discovery_ != nullptr && discovery_->is_open(); }
  std::vector<std::string> waits_for() const;
  std::set<Incarnation> take_peers() { return reach_.take_peers(); }  // before its end

  // The context ends: tells the lead, and is over.
  void end(const Error& why);
  // Something about it failed here, whatever has been reported.
  void fail_here(const Error& error);
  void commit();
  void commit_if_done();  // of another initiator
  void drop(Status why);
  // This worker has lost it. A worker that waits for an answer from here may hear it still, and pass the error on.
  void lose_initiator(const Error& error);

 private:
  // PassGraph::Owner, PassGrads::Owner, Discovery::Owner
  void on_worked(const std::optional<Id>& walk, PassGraph::Outcome outcome) override;
  void report_if_done(wire::Grad* last) override;
  void on_planned(const std::set<Incarnation>& participants, bool has_entries) override;
  void on_failed_search(const Error& error) override { state_.fail(error); }

  void take_outcome(const std::optional<Id>& walk, PassGraph::Outcome outcome);
  void search_or_plan(const std::vector<autograd::GraphTask::Reached>& reached,
                      const std::vector<std::shared_ptr<autograd::Node>>& entries);
  void check_plan(bool has_entries);
  void misplan(const std::string& why);
  bool end_discovery();
  void deliver(PassGrads::Gradient gradient);
  std::shared_ptr<SendNode> find_live_send(const Peer& from, const Id& pair);
  std::shared_ptr<SendNode> find_planned_send(const Peer& from, const Id& pair);
  void close(bool frees_graph);

  DautogradShared& shared_;
  const std::shared_ptr<DistributedContext> context_;
  const PassInfo info_;
  const std::shared_ptr<PassGraph> graph_;
  std::unique_ptr<Discovery> discovery_;      // SMART, until it runs
  std::unique_ptr<Expectation> expectation_;  // of a planned pass
  PartState state_;
  PassGrads grads_;
  PassReach reach_;
  JointSteps joint_;
  bool is_misplanned_ = false;

  bool is_finished_ = false;
  std::vector<Gradients::Entry> staged_;
};

}  // namespace distag
