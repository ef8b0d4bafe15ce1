#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autograd/graph_task.h"
#include "base/task.h"
#include "dist/dist_context.h"
#include "dist/shared.h"
#include "dist/strand.h"

namespace distag {

// What identifies a pass, and how it is run.
struct PassInfo {
  Id pass;
  bool retain_graph = false;
  bool fast = false;
};

// Whom the part of a pass on one worker reports to: the initiator here, or messages to the one elsewhere. On the loop.
class PassLead {
 public:
  virtual ~PassLead() = default;
  // Every walk that started here has come to its end everywhere; who takes part, as far as those walks went.
  virtual void on_planned(const std::set<Incarnation>& participants) = 0;
  // All nodes here have run and all GRADs are numbered.
  virtual void on_done() = 0;
  // Once, and nothing after it.
  virtual void on_failed(const Error& error) = 0;
};

// The part that one pass has on one worker: walks for DISCOVER, gradients from and to peers, the staging of what leaves
// get. Lives on the loop; all work on the graph goes to its strand, which holds the part as long as it has any. Ended
// by commit() or drop(), exactly once; nothing is reported after that.
class PassPart : public std::enable_shared_from_this<PassPart> {
 public:
  // `task` may have walked from the roots already.
  PassPart(DistShared& shared, std::shared_ptr<DistContext> context, PassInfo info,
           std::shared_ptr<autograd::GraphTask> task);
  ~PassPart();
  PassPart(const PassPart&) = delete;
  PassPart& operator=(const PassPart&) = delete;

  // A walk meets a recv: it has to be of this context. Any thread.
  static autograd::GraphTask::CheckRecv make_recv_check(const ContextRecord& context);

  void set_lead(std::unique_ptr<PassLead> lead);  // owned
  void set_lead(PassLead* lead) { lead_ = lead; }
  const PassInfo& info() const { return info_; }

  // The initiator's: walks from the roots (or goes on where a walk has reached), and when all is planned runs them.
  void expand_roots(std::vector<autograd::Edge> roots);
  void go_on_from(std::vector<autograd::GraphTask::Reached> reached);
  void run_roots(std::vector<autograd::Edge> roots, Tensors seeds);

  void on_discover(const Peer& from, const wire::Discover& discover);
  void on_discovered(const Peer& from, const wire::Discovered& discovered);
  void on_grad(const Peer& from, wire::Grad& grad);
  // FAST: all sends recorded so far are live, and the roots with them.
  void take_all_sends(std::vector<autograd::Edge> roots);
  void on_gone(Incarnation peer, const Error& error);

  // Of those that wait for a gradient, for reports.
  bool is_idle() const { return busy_ == 0 && host_steps_ == 0 && unnumbered_ == 0; }
  uint64_t grads_sent() const { return grads_sent_; }
  uint64_t grads_received() const { return grads_received_; }
  const std::set<Incarnation>& grads_to() const { return grads_to_; }
  std::vector<std::string> waiting_calls() const;  // only when idle
  bool is_done() const { return reported_ == Report::kDone; }
  // What this part does, and who or what it waits for.
  bool is_searching() const { return !requests_.empty(); }
  std::vector<std::string> waits_for() const;
  const std::set<Incarnation>& peers() const { return peers_; }

  // The context ends: tells the lead, and is over.
  void end(const Error& why);
  void commit();
  void drop();

 private:
  enum class Report { kNothing, kDone, kFailed };
  // What a piece of work on the strand leaves for the loop.
  struct Outcome {
    bool failed = false;
    Error error;
    bool is_finished = false;
    std::vector<autograd::GraphTask::Reached> reached;
    std::vector<autograd::GraphTask::Leaving> leaving;
    std::vector<autograd::GraphTask::HostStep> host_steps;
    std::vector<Gradients::Entry> gradients;
  };
  // A walk that somebody waits for: the initiator itself (asker 0) or the sender of a DISCOVER.
  struct Request {
    Incarnation asker = 0;
    size_t open = 0;  // DISCOVERs it caused that are not answered
    std::set<Incarnation> participants;
  };
  struct Child {
    Id parent;
    Incarnation to = 0;
  };
  using Work = UniqueFunction<void(autograd::GraphTask&)>;

  // Begins with `action`, then walks and runs as far as it goes: a little right here, more on the strand. A walk
  // belongs to a request, other work to none.
  void work(const Id* request, Work action);
  void post_work(const Id* request, Work action);
  // False when the limits left some of it.
  bool advance(Work& action, bool is_on_loop, Outcome& outcome);
  void on_worked(const Id* request, Outcome outcome);
  void note_reached(const std::vector<autograd::GraphTask::Reached>& reached);
  void send_discovers(const Id& parent, const std::vector<autograd::GraphTask::Reached>& reached);
  void end_request(const Id& id);
  void fail_request(const Id& id, const Error& error);
  void send_grad(autograd::GraphTask::Leaving leaving);
  void post_host_step(autograd::GraphTask::HostStep step);
  std::shared_ptr<SendNode> find_live_send(const Peer& from, const Id& pair);
  void finish_host_step(autograd::GraphTask::HostStep step, Tensors gradients);
  void report_if_done();
  void fail_part(const Error& error);
  void close();
  void discard_graph();

  const std::shared_ptr<DistShared> kept_shared_;  // the strand may outlive the Dist
  DistShared& shared_;
  const std::shared_ptr<DistContext> context_;
  const PassInfo info_;
  std::shared_ptr<autograd::GraphTask> task_;  // touched by the strand, and by the loop while busy_ is 0
  const std::shared_ptr<Strand> strand_;
  std::atomic<bool> stop_{false};  // the strand gives up between two nodes

  std::unique_ptr<PassLead> own_lead_;
  PassLead* lead_ = nullptr;
  Report reported_ = Report::kNothing;
  bool is_closed_ = false;
  bool is_finished_ = false;
  bool frees_graph_ = false;  // committed without retain_graph
  bool is_partial_ = false;   // of some send not all values are live: the others may hang on a large graph
  size_t busy_ = 0;           // pieces of work on the strand
  size_t host_steps_ = 0;     // on the functions executor
  size_t unnumbered_ = 0;     // GRADs
  uint64_t grads_sent_ = 0;
  uint64_t grads_received_ = 0;
  std::set<Incarnation> grads_to_;
  std::unordered_map<Id, Request> requests_;
  std::unordered_map<Id, Child> children_;
  std::unordered_map<Id, std::shared_ptr<SendNode>> live_sends_;
  std::unordered_set<const autograd::Node*> live_recvs_;
  std::set<Incarnation> peers_;  // this part needs
  std::vector<Gradients::Entry> staged_;
};

}  // namespace distag
