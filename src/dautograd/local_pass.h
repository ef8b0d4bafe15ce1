#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dautograd/discovery.h"
#include "dautograd/distributed_context.h"
#include "dautograd/expectation.h"
#include "dautograd/gradient_pairs.h"
#include "dautograd/joint_steps.h"
#include "dautograd/pass_graph.h"
#include "dautograd/pass_info.h"
#include "dautograd/pass_reach.h"
#include "dautograd/shared.h"

namespace distag {

// Gets the reports of the part of a pass on one worker: the initiator here, or messages to the one elsewhere. On the
// loop.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // The walk from the roots is over here, and has reached no entry. True: what lies behind is known (follow_plan), and
  // no worker is asked.
  virtual bool on_walked(const std::vector<autograd::GraphTask::Reached>&) { return false; }
  // Of a plan: it holds here.
  virtual void on_checked() {}
  // Every walk that started here has come to its end everywhere; gives the participants that they have met.
  virtual void on_planned(const std::set<Incarnation>& participants, bool has_entries) = 0;
  // All nodes here have run and all GRADs are numbered. `last`: one that goes to the initiator now, and may say so.
  virtual void on_done(wire::Grad* last) = 0;
  // Once, and nothing after it.
  virtual void on_failed(const Error& error) = 0;
};

// The part that one pass has on one worker: the gradients from and to peers, and the staging of what leaves get. A
// SMART pass begins with a Discovery and runs once that is over, which another worker's part notices by its first GRAD;
// a planned one with an Expectation.
// On the loop; the graph belongs to a PassGraph. Ended by commit() or drop(), exactly once; nothing is reported after
// that.
class LocalPass final : public std::enable_shared_from_this<LocalPass>, PassGraph::Owner, Discovery::Owner {
 public:
  // `task` may have walked from the roots already.
  LocalPass(DautogradShared& shared, std::shared_ptr<DistributedContext> context, PassInfo info,
            std::shared_ptr<autograd::GraphTask> task);
  ~LocalPass() override;
  LocalPass(const LocalPass&) = delete;
  LocalPass& operator=(const LocalPass&) = delete;

  // A walk meets a recv: it has to be of this context. Any thread.
  static autograd::GraphTask::CheckRecv make_recv_check(const ContextRecord& context);

  void set_observer(std::unique_ptr<PassObserver> lead);  // owned
  void set_observer(PassObserver* lead) { observer_ = lead; }
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
  // Whether gradients have a history, as a peer says. False where it differs: the pass has failed then.
  bool check_history(const Peer& from, bool creates_graph);
  Heard on_go();
  Heard on_entered(const Peer& from, const wire::EntryName& entry);
  // FAST: all sends recorded so far are live, and the roots with them.
  void take_all_sends(std::vector<autograd::Edge> roots);
  void on_gone(Incarnation peer, const Error& error);

  // Of those that wait for a gradient, for reports.
  bool is_idle() const { return graph_->is_idle() && unnumbered_ == 0; }
  uint64_t grads_sent() const { return grads_sent_; }
  uint64_t grads_received() const { return grads_received_; }
  const std::set<Incarnation>& grads_to() const { return grads_to_; }
  std::vector<std::string> waiting_calls() const;  // only when idle
  bool is_done() const { return reported_ == Report::kDone; }
  // The pairs that its GRADs have made, once it is done; nullptr before, and where gradients have no history.
  GradientPairs* ready_pairs() const { return is_done() ? gradient_pairs_.get() : nullptr; }
  // The work that this part does, and the workers, tasks and gradients that it waits for.
  bool is_searching() const { return discovery_ != nullptr && discovery_->is_open(); }
  std::vector<std::string> waits_for() const;
  Nanos age() const { return shared_.environment.loop.now() - begun_; }
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
  enum class Report { kNothing, kDone, kFailed };

  // PassGraph::Owner, Discovery::Owner
  void on_worked(const std::optional<Id>& walk, PassGraph::Outcome outcome) override;
  void on_planned(const std::set<Incarnation>& participants, bool has_entries) override;
  void on_failed_search(const Error& error) override { fail_part(error); }

  void take_outcome(const std::optional<Id>& walk, PassGraph::Outcome outcome);
  void search_or_plan(const std::vector<autograd::GraphTask::Reached>& reached,
                      const std::vector<std::shared_ptr<autograd::Node>>& entries);
  void check_plan(bool has_entries);
  void misplan(const std::string& why);
  bool end_discovery();
  void send_grads(std::vector<autograd::GraphTask::Leaving> leaving);
  void send_grad(autograd::GraphTask::Leaving leaving);
  Tensors take_gradients(const SendNode& send, wire::Grad& grad);
  void deliver(Expectation::Gradient gradient);
  std::shared_ptr<SendNode> find_live_send(const Peer& from, const Id& pair);
  std::shared_ptr<SendNode> find_planned_send(const Peer& from, const Id& pair);
  void report_if_done(wire::Grad* last = nullptr);
  void fail_part(const Error& error);
  void fail_later();
  void fail_by_grad(const Error& error);  // one came that fits to nothing here
  void trace() const;
  void close(bool frees_graph);

  DautogradShared& shared_;
  const std::shared_ptr<DistributedContext> context_;
  const PassInfo info_;
  const std::shared_ptr<PassGraph> graph_;
  std::unique_ptr<Discovery> discovery_;                 // SMART, until it runs
  std::unique_ptr<Expectation> expectation_;             // of a planned pass
  const std::unique_ptr<GradientPairs> gradient_pairs_;  // with create_graph
  PassReach reach_;
  JointSteps joint_;
  bool is_misplanned_ = false;

  std::unique_ptr<PassObserver> own_observer_;
  PassObserver* observer_ = nullptr;
  Report reported_ = Report::kNothing;
  TaskPlace again_;  // for the next attempt to tell the initiator
  bool is_closed_ = false;
  Status ended_with_ = Status::kOk;
  const Nanos begun_;
  bool is_finished_ = false;
  size_t unnumbered_ = 0;  // GRADs
  uint64_t grads_sent_ = 0;
  uint64_t grads_received_ = 0;
  std::set<Incarnation> grads_to_;
  std::vector<Gradients::Entry> staged_;
};

}  // namespace distag
