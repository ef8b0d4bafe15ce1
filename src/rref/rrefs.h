#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/random.h"
#include "rpc/rpc.h"
#include "rref/rref.h"

namespace distag {

struct RrefStats {
  uint64_t owned = 0;
  uint64_t used = 0;
  uint64_t forks = 0;
};

// Describes a value of this worker to users.
struct OwnedValueInfo {
  uint64_t id = 0;
  std::string origin;                // the call that makes it; empty: shared by its owner
  const char* state = "";            // "making", "made", "failed"
  std::vector<std::string> holders;  // names of workers that hold references, once for each reference
};

struct FetchOptions {
  Id context;         // {0,0}: none
  Nanos timeout = 0;  // 0: the worker's default; kForever: none
  std::shared_ptr<Invocation> within;
  std::string label;
  std::shared_ptr<const TraceParent> trace_parent = {};
  bool has_time = false;  // as in CallRequest
};

// The remote references of one worker: its values that others may use, and its references to values of others. A
// ReferenceHook of Rpc that also handles its own messages. Public methods may be called on any thread unless they say
// otherwise.
class Rrefs final : public ReferenceHook {
 public:
  struct Environment {
    Loop& loop;
    Executor& compute;  // runs the slow parts of a fetch
    Log& log;
    Random& random;
    Nanos call_timeout;
  };

  Rrefs(Environment environment, Group& group, Rpc& rpc);
  ~Rrefs() override;

  // The object that every reference of this worker returns for its worker, even beyond the worker's end. Must be set
  // before the first reference is made.
  void set_host(std::shared_ptr<void> host);

  // On the loop. begin(): before messages and calls come. stop(): at the shutdown.
  void begin(const Peer& self);
  void stop();

  // Shares a value of this worker. Throws INVALID_ARGUMENT if it holds a reference of another worker.
  std::shared_ptr<Rref> create(Value value);
  // Calls a function whose result stays at the callee. Throws what Rpc::call throws.
  std::shared_ptr<Rref> remote(CallRequest request);
  // Fetches the value: at the owner the value itself, elsewhere a copy. Throws INVALID_ARGUMENT for a reference of
  // another worker, otherwise what Rpc::call throws.
  std::shared_ptr<Future<Value>> fetch(const std::shared_ptr<Rref>& reference, FetchOptions options);

  // On the loop.
  Heard handle(const Peer& from, const wire::Message& message);
  void on_gone(const Peer& peer);  // lost, or left
  bool is_idle() const;
  std::vector<OwnedValueInfo> owned_values() const;

  RrefStats stats() const;

  // ReferenceHook. On the loop.
  void check(const Value& value) const override;  // any thread
  void check_made(const Peer& to, const Value& value) const override;
  Values on_send(const Peer& to, const Values& values) override;
  Value on_receive(const Peer& from, const Value& value) override;
  void on_creation_queued(const wire::Reference& kept) override;
  void on_creation_numbered(const wire::Reference& kept) override;
  void on_creation_acknowledged(wire::Reference& kept) override;
  void on_creation_failed(wire::Reference& kept, const Peer& callee, const Error& error) override;
  std::shared_ptr<Future<Value>> on_creation(const Peer& from, const Id& value, const std::string& call) override;
  void when_ready(const Values& args, UniqueFunction<void(const Error*)> ready) override;
  Values resolve(const Values& args) const override;  // any thread
  std::vector<std::string> leaks() const override;

 private:
  struct State;
  void end_values();

  const std::shared_ptr<State> state_;
};

}  // namespace distag
