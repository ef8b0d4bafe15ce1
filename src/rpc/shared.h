#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/loop_gate.h"
#include "rpc/function_table.h"
#include "rpc/membership.h"
#include "rpc/rpc.h"
#include "rpc/running_functions.h"

namespace distag {

// A member as calls see it. On the loop.
struct CallPeer {
  std::shared_ptr<const Peer> peer;
  uint64_t requests_sent = 0;
  uint64_t requests_received = 0;
};

struct CallCounters {
  std::atomic<uint64_t> made{0};
  std::atomic<uint64_t> served{0};
  std::atomic<uint64_t> failed{0};
  std::atomic<uint64_t> open_made{0};
  std::atomic<uint64_t> open_served{0};
};

// The state that the parts of Rpc have in common. Invocations and replies that the host keeps hold it, beyond the Rpc
// if need be.
struct RpcShared {
  enum class Phase { kCreated, kServing, kStopped };

  RpcShared(Rpc& rpc_, Rpc::Environment environment_, RpcConfig config_)
      : rpc(rpc_), environment(environment_), config(config_), gate(environment_.loop) {}

  Rpc& rpc;
  const Rpc::Environment environment;
  const RpcConfig config;

  // Any thread.
  LoopGate gate;
  Membership membership;
  FunctionTable functions;
  RunningFunctions running;
  CallCounters counters;
  std::atomic<Phase> phase{Phase::kCreated};

  // Set before the start, then as they are.
  CallHook* hook = nullptr;
  ReferenceHook* references = nullptr;
  OpRunner op_runner;

  // On the loop.
  Session* session = nullptr;  // nullptr before the start and after the shutdown
  Peer self;
  bool is_open_world = false;
  std::unordered_map<Incarnation, CallPeer> peers;

  // On the loop. Throws what calls to it fail with, if it is gone; of a rank, to its latest member.
  void check_present(Incarnation worker) const;
  void check_rank_present(int32_t rank) const;

  CallPeer& peer_of(const Peer& peer) {
    CallPeer& entry = peers[peer.incarnation];
    if (entry.peer == nullptr) entry.peer = std::make_shared<const Peer>(peer);
    return entry;
  }
};

// Throws INVALID_ARGUMENT for a value with a reference that cannot travel from this worker. Any thread.
void check_references(const RpcShared& shared, const Value& value);
// A value that is converted here has to be held until the message that is being numbered has its number.
void convert_references(RpcShared& shared, const Peer& to, Value& value);
// Of a message that has come. Throws Violation.
void receive_references(RpcShared& shared, const Peer& from, Value& value);

// `call "embed" ("layer 3") on "ps1"`, without what is in brackets when it has no label: how autograd names it.
std::string name_call(const std::string& function, const std::string& label, const Peer& callee);
// The same and ` (rank 3)`: what errors of calls begin with.
std::string describe_call(const std::string& function, const std::string& label, const Peer& callee);
// `worker "ps1" (rank 3)`
std::string describe_peer(const Peer& peer);
// "2.5 s", "30 ms"
std::string describe_time(Nanos time);

}  // namespace distag
