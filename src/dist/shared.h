#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "dist/dist.h"
#include "dist/dist_context.h"
#include "rpc/loop_gate.h"
#include "session/session.h"

namespace distag {

class ContextTable;
class Passes;

struct DistContext;

// The state that the parts of Dist have in common. Handles, strands and futures hold it, beyond the Dist if need be:
// then the gate is closed.
struct DistShared : std::enable_shared_from_this<DistShared> {
  DistShared(Dist::Environment environment_, Rpc& rpc_)
      : environment(environment_), rpc(rpc_), gate(environment_.loop) {}

  const Dist::Environment environment;
  Rpc& rpc;  // on the loop

  // Any thread.
  LoopGate gate;
  std::atomic<bool> is_started{false};  // `self` is set before and stays
  Peer self;
  std::atomic<uint64_t> last_context{0};
  std::atomic<uint64_t> last_pass{0};
  struct Counters {
    std::atomic<uint64_t> contexts{0};
    std::atomic<uint64_t> passes_run{0};
    std::atomic<uint64_t> passes_failed{0};
    std::atomic<uint64_t> passes_open{0};
  } counters;

  // On the loop.
  Session* session = nullptr;
  ContextTable* contexts = nullptr;  // these two for handles; nullptr once the Dist has gone
  Passes* passes = nullptr;
  std::unordered_map<Incarnation, size_t> parts_of_others;  // open, by initiator
  std::unordered_map<Id, std::shared_ptr<DistContext>> open_passes;
  uint64_t last_pair = 0;
  uint64_t last_request = 0;

  Id next_pass() { return {self.incarnation, ++last_pass}; }
  Id next_request() { return {self.incarnation, ++last_request}; }
  bool is_gone(Incarnation worker) const;          // or was never known; on the loop
  std::string describe(Incarnation worker) const;  // `worker "ps1" (rank 3)`; on the loop

  // A message whose loss nobody needs to hear of: the loss of its receiver says it all.
  void tell(Incarnation to, wire::Body body);
  // An error of this worker, on its way to others.
  Error sign(Error error) const;
};

}  // namespace distag
