#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "base/loop_gate.h"
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

// The state that the parts of Rpc share. Invocations and replies that the host keeps hold it, even beyond the
// Rpc.
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

  // Set before the start and not changed after it.
  CallHook* hook = nullptr;
  ReferenceHook* references = nullptr;
  OpRunner op_runner;
};

}  // namespace distag
