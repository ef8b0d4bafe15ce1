#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "autograd/roots.h"
#include "dautograd/fast_rounds.h"
#include "dautograd/local_pass.h"
#include "dautograd/participants.h"
#include "dautograd/pass_plan.h"
#include "dautograd/pass_verdict.h"

namespace distag {

// Begins a pass, and decides how it ends: in one place, when the last DONE is there, or at the first error before. On
// the loop; held by the context's list of passes until then.
class PassInitiator final : public PassObserver, public std::enable_shared_from_this<PassInitiator>, FastRounds::Owner {
 public:
  struct Plan {
    PassInfo info;
    autograd::Roots roots;
    Nanos timeout = kForever;
    Nanos deadline = kNever;
    std::shared_ptr<Future<Value>> future;
    bool searches = false;  // even if there is a plan
    // By this the canceller of the future finds the initiator of the pass; touched on the loop only. May be nullptr.
    std::shared_ptr<std::weak_ptr<PassInitiator>> leader = nullptr;
    // Set if the caller's thread has walked from the roots already.
    std::shared_ptr<autograd::GraphTask> task;
    std::vector<autograd::GraphWalk::Reached> reached;
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
  void on_probe_answer(const Peer& from, const wire::ProbeAnswer& answer) { rounds_.on_answer(from, answer); }
  void on_gone(Incarnation peer, const Error& error);
  bool is_planned() const { return is_planned_; }
  std::vector<std::string> waits_for() const;

  void on_planned(const std::set<Incarnation>& participants, bool has_entries) override;
  bool on_walked(const std::vector<autograd::GraphWalk::Reached>& reached) override;
  void on_checked() override { run(); }
  void on_done(wire::Grad* last) override;
  void on_failed(const Error& error) override;

 private:
  // FastRounds::Owner
  bool has_lost_participant() override;
  void note_own(Participants::State& own) override;
  void on_unreached(const Error& error) override { abort(error); }

  bool tell_plan(PassPlan plan);
  void search_instead();
  void begin_fast(const std::vector<Incarnation>& holders);
  void run();
  void tell_to_go();
  void decide();
  void commit();
  void finish();
  void on_deadline();
  void note_counts();
  void tell_verdict(bool commits, const Error& error);

  DautogradShared& shared_;
  const std::shared_ptr<DistributedContext> context_;
  Plan plan_;
  Task on_over_;
  std::shared_ptr<LocalPass> part_;
  Participants participants_;  // this worker included
  FastRounds rounds_;
  PassVerdict verdict_;
  bool is_over_ = false;
  bool is_planned_ = false;
  bool has_entries_ = false;
  bool follows_plan_ = false;
  std::vector<Id> planned_;  // pairs
  Loop::TimerId deadline_timer_ = 0;
};

}  // namespace distag
