#pragma once

#include <vector>

#include "base/each_step.h"
#include "worker/rref_places.h"
#include "worker/worker.h"

namespace distag {

// The rooms that a worker is made of, each built on those above it. They know each other by small interfaces only,
// which the constructor installs. All events of peers come on the loop, between begin() and stop(); what threads may
// call says the header of each room.
//
// Orders that hold everywhere: passes end before calls, so that they end with the loss of a peer itself and not with
// the failure of a call that hangs on it; references go last, as what runs may still use them.
struct Layers {
  Layers(const WorkerEnvironment& environment, const WorkerOptions& options);

  // The session is up, and the group is known.
  void begin(Session& session, const std::vector<Peer>& roster, bool is_open_world);
  // Ends what is open; each of the steps is tried, also a second time after one of them has failed.
  void stop(EachStep& each);

  void on_lost(const Peer& peer, const Error& error);
  void on_left(const Peer& peer);
  void on_lack(const Peer& peer, const Error& lack, bool is_long);

  Group group;
  Rpc rpc;
  Rrefs rrefs;
  Meshes meshes;
  spmd::ProgramTable programs;
  Dautograd dautograd;
  RrefPlaces places;
  optim::Optim optim;
};

}  // namespace distag
