#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/future.h"
#include "base/log.h"
#include "base/loop.h"
#include "rpc/membership.h"
#include "rpc/op_runner.h"
#include "rpc/open_call.h"
#include "session/session.h"
#include "tensor/value.h"
#include "wire/message.h"

namespace distag {

class Invocation;
class Rpc;

// The layer above as calls see it (distributed autograd). Installed by the worker before the start; all on the loop.
class CallHook {
 public:
  virtual ~CallHook() = default;

  // Before a call of this worker in a context is queued: throws INVALID_STATE (ended), INVALID_ARGUMENT (not one of
  // this worker). Each success is followed by one on_call_ended, when its future has completed.
  virtual void on_call_begun(const Id& context) = 0;
  virtual void on_call_ended(const Id& context) = 0;

  // When a call or an answer in a context gets its number: notes the tensors that require grad among `values` and says
  // what travels beside them. `call` names it in errors: `call "embed" on "ps1"`. An answer for a context that is over
  // gets a recording without a pair.
  virtual wire::Recording on_send(const Id& context, const Peer& to, const std::vector<const Value*>& values,
                                  const std::string& call, bool is_answer) = 0;

  // When a call (is_answer false; makes the context known here) or an answer has arrived, before anybody sees its
  // values. Gives the tracked tensors their history. Throws Error to refuse a call with it: OVERLOADED, INVALID_STATE.
  virtual void on_receive(const wire::Recording& recording, const Peer& from, const std::vector<const Value*>& values,
                          const std::string& call, bool is_answer) = 0;
};

// The layer above as calls see it (remote references). Installed by the worker before the start; on the loop, unless it
// says otherwise.
class ReferenceHook {
 public:
  virtual ~ReferenceHook() = default;

  // Throws INVALID_ARGUMENT for a value that holds a reference of another worker. Any thread.
  virtual void check(const Value& value) const = 0;
  // Throws what became of a value whose call never went out. On the loop, where that is decided.
  virtual void check_made(const Value& value) const = 0;

  // A value as it travels, when its message gets its number: it has to be held until after that. And as it arrives,
  // before anything else is done with the message. Only for values that have references.
  virtual Value on_send(const Peer& to, const Value& value) = 0;
  virtual Value on_receive(const Peer& from, const Value& value) = 0;

  // At the caller, of a call whose result stays at the callee as `kept`: queued, numbered, acknowledged; or it never
  // goes out.
  virtual void on_creation_queued(const wire::Reference& kept) = 0;
  virtual void on_creation_numbered(const wire::Reference& kept) = 0;
  virtual void on_creation_acknowledged(wire::Reference& kept) = 0;
  virtual void on_creation_failed(wire::Reference& kept, const Peer& callee, const Error& error) = 0;
  // At the callee, when it has come: where its result goes, and what holds it until then.
  virtual std::shared_ptr<Future<Value>> on_creation(const Peer& from, const Id& value, const std::string& call) = 0;

  // Runs `ready` once all values of this worker that `args` refer to are made; with the first failure among those that
  // are arguments themselves.
  virtual void when_ready(const Values& args, UniqueFunction<void(const Error*)> ready) = 0;
  // The arguments, with those that refer to a value of this worker replaced by it. Any thread, once they are ready.
  virtual Values resolve(const Values& args) const = 0;

  // The values that other workers still hold, a line each.
  virtual std::vector<std::string> leaks() const = 0;
};

struct CallRequest {
  Id context;  // {0,0}: none
  std::string to;
  std::string function;
  Values args;
  Nanos timeout = 0;                   // 0: the worker's default; kForever: none
  std::shared_ptr<Invocation> within;  // the call being answered: bounds deadline and cancellation
  std::string label;
  Incarnation to_incarnation = 0;  // 0: the latest of that name
  // Not empty: the result stays at the callee, as what this makes of it. The answer is null.
  std::function<std::shared_ptr<wire::Reference>(const std::shared_ptr<const Peer>& callee)> keep_as = nullptr;
};

// The answer that a function still owes. Thread-safe. Dropping the last one unfinished fails the call with REMOTE, once
// the function has returned: should it fail, its own failure is the answer.
class PendingReply {
 public:
  virtual ~PendingReply() = default;
  // False when it was finished before, or its worker was shut down. When the call is over otherwise (cancelled, late,
  // caller lost) the answer is dropped, and this is true once.
  virtual bool finish(Value value) = 0;
  virtual bool fail(Error error) = 0;
  virtual bool is_cancelled() const = 0;
};

// One incoming call as its function sees it. Thread-safe.
class Invocation : public std::enable_shared_from_this<Invocation> {
 public:
  virtual ~Invocation() = default;
  virtual Rpc& rpc() = 0;
  virtual const std::string& function() const = 0;
  virtual const std::string& caller() const = 0;  // name of the worker
  virtual const Id& context() const = 0;          // {0,0}: none
  virtual const Values& args() const = 0;
  virtual Nanos deadline() const = 0;   // kNever: none
  virtual Nanos time_left() const = 0;  // kForever: no limit
  virtual bool is_cancelled() const = 0;
  // Sets the answer, which goes out when the function returns. Throws INVALID_STATE when answered or deferred already.
  virtual void set_result(Value value) = 0;
  // Keeps the call open after the function has returned. Throws INVALID_STATE likewise.
  virtual std::shared_ptr<PendingReply> defer() = 0;
};

// Runs on the functions executor; throws Error to fail the call.
using Function = std::function<void(Invocation&)>;

struct RpcConfig {
  Nanos call_timeout = 60 * kSecond;
  Nanos lease = 5 * kSecond;
};

struct RpcStats {
  uint64_t calls_made = 0;
  uint64_t calls_served = 0;
  uint64_t calls_failed = 0;
  uint64_t calls_open = 0;
  uint64_t futures_open = 0;
};

struct ShutdownReport {
  bool clean = true;
  std::vector<std::string> missing;
  int64_t open_calls = 0;
  std::vector<std::string> leaked_rrefs;
};

// Calls, functions and members of one worker. Public methods may be called on any thread unless they say otherwise.
class Rpc {
 public:
  struct Environment {
    Loop& loop;
    Executor& functions;  // host code: the pool, or the host's poll
    Executor& compute;    // built-in ops that are not cheap
    Log& log;
    Random& random;
  };

  Rpc(Environment environment, RpcConfig config);
  ~Rpc();

  // Before the start.
  void set_hook(CallHook* hook);
  void set_reference_hook(ReferenceHook* hook);
  void set_op_runner(OpRunner runner);  // none: there are no built-in ops to call
  // A function of an upper layer, whose name begins with "distag.": short, and run on the loop.
  void register_internal(const std::string& name, Function function);
  // Throws INVALID_STATE when the name is taken, INVALID_ARGUMENT for its form. A function hides a built-in op. Also
  // later.
  void register_function(const std::string& name, Function function);
  // Calls that came before may still run it.
  void unregister_function(const std::string& name);

  // On the loop: the streams are up and the group is known; calls may go.
  void begin(Session& session, std::vector<Peer> members, bool is_open_world = false);
  Session& session();
  const Membership& membership() const;  // any thread; locks inside

  // On the loop: a message of an upper layer that a graceful shutdown waits for to arrive. Dropped when the peer is
  // gone.
  void send(const Peer& to, wire::Body body, Task on_acknowledged);
  void count_received(const Peer& from);
  // On the loop: the peer has sent something that no correct one sends.
  void fence(Incarnation peer, const Error& why);
  // On the loop.
  std::shared_ptr<const Peer> find_peer(Incarnation incarnation) const;  // nullptr: unknown
  bool is_gone(Incarnation incarnation) const;                           // or unknown

  // Queues a call. Refused with INVALID_STATE before the start and after the shutdown, NOT_FOUND for an unknown worker,
  // INVALID_ARGUMENT for a name that no function can have, an argument that cannot travel, or `within` of another
  // worker: these throw; all else completes the future.
  std::shared_ptr<Future<Value>> call(CallRequest request);

  // Brings the values of several members to each of them, once all have come: AllGather::begin.
  std::shared_ptr<Future<Value>> all_gather(const Value& value, std::optional<std::vector<int32_t>> ranks,
                                            Nanos timeout);

  // On the loop: messages and losses for this layer; nullopt when the message is of another layer. Throws Violation,
  // and fails by itself what a shortage here concerns.
  std::optional<Heard> handle(const Peer& from, wire::Message& message);
  // In its place, when there is no memory for its payload or no room for it yet: `why` is what it fails with. False
  // when the message is of another layer.
  bool refuse(const Peer& from, wire::Message& outline, const Error& why);
  void on_lost(const Peer& peer, const Error& error);
  void on_left(const Peer& peer);
  // On the loop: someone has joined the running group; calls by its name reach it from now on.
  void on_joined(const Peer& peer);
  // On the loop: a context is over: its open calls made here end with CANCELLED.
  void end_context(const Id& context);

  // On the loop. Asks other layers too whether anything of theirs is under way (passes): all must answer true to be
  // idle.
  void add_idle_check(std::function<bool()> is_idle);
  // Graceful: goes on serving until the group is quiet, or the deadline; then sends LEAVE, ends what is open with
  // CANCELLED, and completes with the report. In an open world it refuses new calls of others, and waits for those that
  // run and its own only. With a deadline that is past: at once.
  std::shared_ptr<Future<ShutdownReport>> shutdown(Nanos deadline);
  // Leaves at once, because this worker cannot go on: what is open ends with `why`. False when it has begun to leave
  // before. All that is open has ended even if this throws; the streams may not have.
  bool leave_for(const Error& why);

  // Any thread, an executor's: runs other code of the host, counted among the functions that run. Not once the
  // shutdown has ended the service: then this is false.
  bool run_host_code(const std::string& name, const std::function<void()>& code);

  // Names of functions that run now, for a shutdown that timed out.
  std::vector<std::string> running_functions() const;
  // Completes at a moment when no function runs: RunningFunctions::when_empty.
  std::shared_ptr<Future<Unit>> when_no_function_runs();
  RpcStats stats() const;
  std::vector<OpenCall> open_calls() const;  // on the loop; oldest first

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
