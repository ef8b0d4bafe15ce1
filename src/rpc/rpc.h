#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/future.h"
#include "base/log.h"
#include "base/loop.h"
#include "group/group.h"
#include "rpc/call_hook.h"
#include "rpc/call_request.h"
#include "rpc/invocation.h"
#include "rpc/op_runner.h"
#include "rpc/open_call.h"
#include "rpc/reference_hook.h"
#include "session/session.h"
#include "tensor/value.h"
#include "wire/message.h"

namespace distag {

// Limits on what one worker has of another; SECURITY.md describes the effect. The limits for served calls are twice
// those for made calls: the peer may have given up a call that is open here.
struct CallBounds {
  size_t made = size_t{1} << 18;             // open calls to one callee; a further call fails with OVERLOADED
  size_t served = size_t{1} << 19;           // open calls of one caller; further calls are answered with OVERLOADED
  uint64_t not_begun = uint64_t{512} << 20;  // bytes of calls not begun, or twice its budget if larger: likewise
};

struct RpcConfig {
  Nanos call_timeout = 60 * kSecond;
  // Limit for the bytes of requests that a peer has not taken, and for those of answers.
  uint64_t max_in_flight = uint64_t{256} << 20;
  CallBounds bounds = {};
};

struct RpcStats {
  uint64_t calls_made = 0;
  uint64_t calls_served = 0;
  uint64_t calls_failed = 0;
  uint64_t calls_open = 0;
  uint64_t futures_open = 0;
  uint64_t trace_parents_dropped = 0;
};

// Bytes of requests, summed over all peers.
struct RequestBytes {
  uint64_t open = 0;     // sent but not taken by the peer
  uint64_t waiting = 0;  // waiting here for room
};

// Calls and functions of one worker. Public methods may be called on any thread unless they say otherwise.
class Rpc {
 public:
  struct Environment {
    Loop& loop;
    Executor& functions;  // host code: the pool, or the host's poll
    Executor& compute;    // built-in ops that are not cheap
    Log& log;
  };

  // Sets itself as the service of the group.
  Rpc(Group& group, Environment environment, RpcConfig config);
  ~Rpc();

  // To be called before the start.
  void set_hook(CallHook* hook);
  void set_reference_hook(ReferenceHook* hook);
  void set_op_runner(OpRunner runner);  // without it there are no built-in ops to call
  // A function of an upper layer, whose name begins with "distag."; it is short and runs on the loop.
  void register_internal(const std::string& name, Function function);
  // Throws INVALID_STATE when the name is taken, INVALID_ARGUMENT when it is malformed. A function hides a built-in op.
  // Also after the start. With `callers`, calls of any other worker are refused with DENIED.
  void register_function(const std::string& name, Function function, std::vector<std::string> callers = {});
  // Calls that came before may still run the function.
  void unregister_function(const std::string& name);

  // Queues a call. Throws INVALID_STATE before the start and after the shutdown, NOT_FOUND for an unknown worker, and
  // INVALID_ARGUMENT for an invalid function name, an argument that cannot travel, or `within` of another worker. All
  // other failures complete the future.
  std::shared_ptr<Future<Value>> call(CallRequest request);

  // On the loop. Throws Violation. A shortage here fails only the call that it concerns.
  Heard handle(const Peer& from, wire::Message& message);
  // Called instead of handle() when there is no memory for the payload or no room for it yet; the call fails with
  // `why`.
  void refuse(const Peer& from, wire::Message& outline, const Error& why);
  // On the loop. drop(): a call was dropped before it came here. taken(): the credit that a REPLY reports.
  void drop(const Peer& from, const wire::Call& call);
  uint64_t taken(const Peer& from);
  // On the loop. A context is over: its open calls made here end with CANCELLED.
  void end_context(const Id& context);

  // Any thread, in practice an executor's: runs other code of the host, which counts as a running function. Returns
  // false, without running it, once the shutdown has ended the service.
  bool run_host_code(const std::string& name, const std::function<void()>& code);

  // Names of the functions that run now, for a shutdown that timed out.
  std::vector<std::string> running_functions() const;
  // Completes at a moment when no function runs; see RunningFunctions::when_empty.
  std::shared_ptr<Future<Unit>> when_no_function_runs();
  RpcStats stats() const;
  // A call of the host came with a malformed trace parent; those of peers are counted here.
  void note_trace_parent_dropped();
  // On the loop; oldest first. At most `most` of the calls made here, and as many of those served here.
  std::vector<OpenCall> open_calls(size_t most = SIZE_MAX) const;
  // On the loop.
  RequestBytes request_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
