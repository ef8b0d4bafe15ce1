#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/loop_gate.h"
#include "base/trace_parent.h"
#include "group/membership.h"
#include "group/shared.h"
#include "rpc/function_table.h"
#include "rpc/rpc.h"
#include "rpc/running_functions.h"

namespace distag {

struct CallCounters {
  std::atomic<uint64_t> made{0};
  std::atomic<uint64_t> served{0};
  std::atomic<uint64_t> failed{0};
  std::atomic<uint64_t> open_made{0};
  std::atomic<uint64_t> open_served{0};
  std::atomic<uint64_t> trace_parents_dropped{0};

  void note_trace_parent_dropped() noexcept { trace_parents_dropped.fetch_add(1, std::memory_order_relaxed); }
};

// The state that the parts of Rpc have in common. Invocations and replies that the host keeps hold it, beyond the Rpc
// if need be.
struct RpcShared : std::enable_shared_from_this<RpcShared> {
  RpcShared(Rpc& rpc_, std::shared_ptr<GroupShared> group_, Rpc::Environment environment_, RpcConfig config_)
      : rpc(rpc_), environment(environment_), config(config_), group(std::move(group_)), gate(environment_.loop) {}

  Rpc& rpc;
  const Rpc::Environment environment;
  const RpcConfig config;
  const std::shared_ptr<GroupShared> group;

  // Any thread.
  LoopGate gate;
  FunctionTable functions;
  RunningFunctions running;
  CallCounters counters;

  // Set before the start, then as they are.
  CallHook* hook = nullptr;
  ReferenceHook* references = nullptr;
  OpRunner op_runner;
};

// Throws INVALID_ARGUMENT for a value with a reference that cannot travel from this worker. Any thread.
void check_references(const RpcShared& shared, const Value& value);
// The values of a message that is being numbered, which are held until it has its number. All of them or, when it
// throws, none.
void convert_references(RpcShared& shared, const Peer& to, Values& values);
void convert_reference(RpcShared& shared, const Peer& to, Value& value);
// Of a message that has come. Throws Violation.
void receive_references(RpcShared& shared, const Peer& from, Value& value);

// For events of a trace; empty: none.
inline std::string_view trace_id_of(const std::shared_ptr<const TraceParent>& trace_parent) {
  return trace_parent == nullptr ? std::string_view() : trace_parent->trace_id();
}

// `call "embed" ("layer 3") on "ps1"`, without what is in brackets when it has no label: how autograd names it.
std::string name_call(const std::string& function, const std::string& label, const Peer& callee);
// The same and ` (rank 3)`: what errors of calls begin with.
std::string describe_call(const std::string& function, const std::string& label, const Peer& callee);

}  // namespace distag
