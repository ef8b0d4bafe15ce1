#pragma once

#include <vector>

#include "base/each_step.h"
#include "worker/rref_places.h"
#include "worker/worker.h"

namespace distag {

// The layers of a worker, each built on those above it. They know each other only by small interfaces, which the
// constructor installs. All events of peers come on the loop, between begin() and stop(); the header of each layer says
// which methods threads may call.
//
// Order rules that hold everywhere: passes end before calls, so that they end with the loss of the peer itself and not
// with the failure of a call that they depend on; references end last, as running code may still use them.
struct Layers {
  Layers(const WorkerEnvironment& environment, const WorkerOptions& options);

  // Called when the session is up, and the group is known.
  void begin(Session& session, const std::vector<Peer>& roster, bool is_open_world);
  // Ends what is open. Each step is tried, also a second time after one of them has failed.
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
