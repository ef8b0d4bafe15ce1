#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "autograd/roots.h"
#include "dautograd/local_pass.h"
#include "dautograd/pass_plan.h"

namespace distag {

// Begins a pass, and decides how it ends: in one place, when the last DONE is there, or at the first error before. On
// the loop; held by the context's list of passes until then.
class PassInitiator final : public PassObserver, public std::enable_shared_from_this<PassInitiator> {
 public:
  struct Plan {
    PassInfo info;
    autograd::Roots roots;
    Nanos timeout = kForever;
    Nanos deadline = kNever;
    std::shared_ptr<Future<Value>> future;
    bool searches = false;  // in any case
    // Where the canceller of the future finds who leads the pass; touched on the loop only. May be nullptr.
    std::shared_ptr<std::weak_ptr<PassInitiator>> leader = nullptr;
    // When the caller's thread has walked from the roots already.
    std::shared_ptr<autograd::GraphTask> task;
    std::vector<autograd::GraphTask::Reached> reached;
    std::vector<std::shared_ptr<autograd::Node>> entries;
  };

  // `on_over` runs once the pass has ended, whichever way.
  PassInitiator(DautogradShared& shared, std::shared_ptr<DistributedContext> context, Plan plan, Task on_over);
  ~PassInitiator() override;

  void begin();
  void abort(Error error);
  void cancel();

  void on_joined(const Peer& from);
  void on_done(const Peer& from, const wire::Done& done);
  void on_holders(const std::vector<Incarnation>& holders);
  void on_probe_answer(const Peer& from, const wire::ProbeAnswer& answer);
  void on_gone(Incarnation peer, const Error& error);
  bool is_planned() const { return is_planned_; }
  std::vector<std::string> waits_for() const;

  void on_planned(const std::set<Incarnation>& participants, bool has_entries) override;
  bool on_walked(const std::vector<autograd::GraphTask::Reached>& reached) override;
  void on_checked() override { run(); }
  void on_done(wire::Grad* last) override;
  void on_failed(const Error& error) override;

 private:
  // The state that one participant has told; this worker is a participant too.
  struct Participant {
    bool is_done = false;
    bool is_idle = false;  // in the latest answer
    uint64_t round = 0;    // of the latest answer
    uint64_t grads_sent = 0;
    uint64_t grads_received = 0;
    std::vector<std::string> unreached;
  };

  bool tell_plan(PassPlan plan);
  void search_instead();
  void begin_fast(const std::vector<Incarnation>& holders);
  bool has_lost_participant();  // ends the pass then
  void run();
  void tell_to_go();
  void decide();
  void commit();
  void finish();
  void on_deadline();
  void note_own();
  void add_participant(Incarnation worker);
  void note_targets(const std::vector<Incarnation>& grads_to);
  void tell_verdict(bool commits, const Error& error);
  void tell_those_left(bool commits, const Error& error);

  // FAST: rounds of probes find out that nothing can move.
  void schedule_probe(Nanos delay);
  void probe();
  void judge_round();
  std::string describe_unreached() const;

  DautogradShared& shared_;
  const std::shared_ptr<DistributedContext> context_;
  Plan plan_;
  Task on_over_;
  std::shared_ptr<LocalPass> part_;
  std::map<Incarnation, Participant> participants_;  // this worker included
  std::set<Incarnation> joined_;                     // an abort goes to them too
  bool is_over_ = false;
  bool is_planned_ = false;
  bool has_entries_ = false;
  bool follows_plan_ = false;
  std::vector<Id> planned_;  // pairs
  Loop::TimerId deadline_timer_ = 0;
  Loop::TimerId probe_timer_ = 0;
  TaskPlace tell_again_;
  Error verdict_;  // while it waits there
  Nanos probe_delay_ = 0;
  uint64_t round_ = 0;
  uint64_t judged_round_ = 0;
  std::vector<uint64_t> last_counts_;  // of the round before, if all were idle and nothing was on its way
};

}  // namespace distag
