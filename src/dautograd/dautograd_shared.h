#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/loop_gate.h"
#include "dautograd/dautograd.h"
#include "dautograd/distributed_context.h"
#include "dautograd/lineage.h"
#include "dautograd/open_passes.h"
#include "session/session.h"

namespace distag {

class ContextTable;
class Passes;

struct DistributedContext;

// The state that the parts of Dautograd have in common. Handles, strands and futures hold it, beyond the Dautograd if
// need be: then the gate is closed.
struct DautogradShared : std::enable_shared_from_this<DautogradShared> {
  DautogradShared(Dautograd::Environment environment_, Group& group_, Rpc& rpc_)
      : environment(environment_), group(group_), rpc(rpc_), gate(environment_.loop) {
    lineage.limits = environment.lineage;
  }

  const Dautograd::Environment environment;
  Group& group;
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
    std::atomic<uint64_t> passes_planned{0};
    std::atomic<uint64_t> passes_searched{0};
  } counters;

  // On the loop.
  Session* session = nullptr;
  ContextTable* contexts = nullptr;  // these two for handles; nullptr once the Dautograd has gone
  Passes* passes = nullptr;
  OpenPasses open_passes;
  LineageBudget lineage;
  uint64_t last_pair = 0;
  uint64_t last_request = 0;

  Id next_pass() { return {self.incarnation, ++last_pass}; }
  Id next_request() { return {self.incarnation, ++last_request}; }
  bool is_gone(Incarnation worker) const;          // or was never known; on the loop
  std::string describe(Incarnation worker) const;  // `worker "ps1" (rank 3)`; on the loop

  // Sends a message whose loss needs no report: the loss of its receiver is reported anyway.
  void tell(Incarnation to, wire::Body body);
  // Marks an error of this worker, on its way to others.
  Error sign(Error error) const;
};

}  // namespace distag
