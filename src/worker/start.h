#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/greeting.h"
#include "worker/members.h"
#include "worker/phase.h"
#include "worker/place_finder.h"
#include "worker/start_gate.h"
#include "worker/worker_view.h"

namespace distag {

// The start of a worker: it finds its places, opens its links, meets the group at the rendezvous, says HELLO to members
// that run already, and opens the gate. Each step begins when the one before has ended, so at most one waits. A start
// that fails before the layers have begun undoes all, and may be tried again; a later failure is one of the loop. On
// the loop.
class Start {
 public:
  Start(const WorkerEnvironment& environment, const WorkerOptions& options, WorkerPhase& phase, Layers& layers,
        GroupLinks& links, WorkerView& view, EventLog& events, StartGate& gate, Members& members);

  // `outcome` completes once the worker is started. `arrivals` gets all events of the session.
  void begin(Owed<Value> outcome, Nanos deadline, SessionEvents& arrivals);
  // The caller no longer waits for this outcome, which may be that of an earlier start.
  void cancel(const Future<Value>* outcome);
  // Undoes the start so far, and fails it with `error`.
  void abandon(const Error& error);
  // The same, when the worker ends: the outcome fails as dropped.
  void drop();
  void drop_outcome() noexcept;  // only the outcome

  // Whether the group is known.
  bool has_roster() const { return !roster_.empty(); }
  void on_lost(const Peer& peer, const Error& error);
  void on_left(const Peer& peer);

 private:
  void open(const Places& found, SessionEvents& arrivals);
  SessionConfig make_config(const RendezvousTarget& target);
  void check_advertised(const std::string& address) const;
  void join(const Places& found);
  void on_joined(Rendezvous::Outcome outcome);
  void meet(std::vector<Peer> members);
  void begin_service_soon();
  void on_greeted(std::optional<Error> error);
  void begin_service();
  void fail_soon(Error error);
  void forget();

  const WorkerEnvironment& environment_;
  const WorkerOptions& options_;
  WorkerPhase& phase_;
  Layers& layers_;
  GroupLinks& links_;
  WorkerView& view_;
  EventLog& events_;
  StartGate& gate_;
  Members& members_;
  const std::shared_ptr<PlaceFinder> finder_;
  std::shared_ptr<Future<Value>> outcome_;  // while it is owed
  Nanos deadline_ = kNever;
  std::vector<Peer> roster_;
  std::unique_ptr<Greeting> greeting_;
  TaskPlace failure_place_;  // for failures after the start
};

}  // namespace distag
