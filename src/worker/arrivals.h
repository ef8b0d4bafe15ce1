#pragma once

#include "worker/members.h"
#include "worker/phase.h"
#include "worker/router.h"
#include "worker/start.h"
#include "worker/start_gate.h"

namespace distag {

// All events that a worker's session reports. Members may know the group before this worker does, so early messages are
// held at the gate, in order, with losses between them; a message that finds no room there is refused if its sender
// waits for an answer. Once the gate is open, messages go straight to the layers. On the loop.
class Arrivals final : public SessionEvents {
 public:
  Arrivals(const WorkerEnvironment& environment, const WorkerPhase& phase, Layers& layers, GroupLinks& links,
           EventLog& events, StartGate& gate, Router& router, Members& members, Start& start)
      : loop_(environment.loop),
        phase_(phase),
        layers_(layers),
        links_(links),
        events_(events),
        gate_(gate),
        router_(router),
        members_(members),
        start_(start) {}

  Heard on_message(const Peer& from, wire::Message& message) override;
  void on_unstored(const Peer& from, wire::Message& outline, const Error& why) override;
  void on_lost(const Peer& peer, const Error& error) override;
  void on_left(const Peer& peer) override;
  bool on_stranger(const Peer& peer) override;
  void on_admitted(const Peer& peer) override;
  void on_restarted(const Peer& peer, const Error& error) override;

 private:
  Heard hold(const Peer& from, wire::Message& message);
  void refuse_early(const Peer& from, const wire::Message& outline, Error why);
  bool lead_early(const Peer& from, wire::Message& message);

  Loop& loop_;
  const WorkerPhase& phase_;
  Layers& layers_;
  GroupLinks& links_;
  EventLog& events_;
  StartGate& gate_;
  Router& router_;
  Members& members_;
  Start& start_;
};

}  // namespace distag
