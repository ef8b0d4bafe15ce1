#pragma once

#include <functional>
#include <memory>

#include "autograd/context.h"
#include "autograd/joint.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/loop.h"
#include "dautograd/lineage_limits.h"
#include "dautograd/snapshot.h"
#include "rpc/rpc.h"

namespace distag {

class ContextRecord;
class Mesh;
struct DautogradShared;

struct DautogradStats {
  uint64_t contexts = 0;
  uint64_t passes_run = 0;
  uint64_t passes_failed = 0;
  uint64_t passes_open = 0;
  // Passes that were begun here, in SMART mode, and left this worker.
  uint64_t passes_planned = 0;
  uint64_t passes_searched = 0;  // a plan that did not hold counts in both
};

// Distributed autograd of one worker: contexts, recording, passes. schemas/autograd.fbs states the rules of a pass.
// A CallHook of Rpc, and a taker of its own messages.
class Dautograd final : public CallHook {
 public:
  struct Environment {
    Loop& loop;
    Executor& compute;    // strands of passes: graph walks, backward, sums, freeing of graphs
    Executor& functions;  // backward of custom ops: host code
    Log& log;
    Nanos lease;
    // Finds the entry of that name in a mesh that `peer` is a member of too; nullptr if it is gone. Throws Violation.
    // On the loop. Without this function there are no meshes.
    std::function<std::shared_ptr<autograd::Node>(const Peer& peer, const autograd::EntryName& name)> find_entry =
        nullptr;
    // Whether the program of this worker may still make contexts of that mesh. On the loop.
    std::function<bool(const Id& mesh)> is_mesh_open = nullptr;
    LineageLimits lineage = {};
    size_t max_sends = size_t{1} << 20;  // calls and answers of a context whose tensors require grad
  };

  Dautograd(Environment environment, Group& group, Rpc& rpc);
  ~Dautograd() override;

  // On the loop, before messages and calls come: the streams are up and the group is known.
  void begin(Session& session);

  // A new context of this worker; throws INVALID_STATE when the worker is not started. Any thread.
  std::shared_ptr<Context> create_context();
  // The joint context of that number of a mesh, as this member's program makes it. Throws like create_context. Any
  // thread.
  struct JointPlace {
    std::shared_ptr<DautogradShared> shared;
    std::shared_ptr<ContextRecord> record;
  };
  JointPlace join_context(const Mesh& mesh, uint64_t number);
  // The context an invocation came in; nullptr for {0,0}. A handle of this kind does not keep the context. Any thread.
  std::shared_ptr<Context> find_context(const Id& id);
  // Whether create_context or find_context of this worker gave the handle. Any thread.
  bool is_mine(const Context& context) const;

  // CallHook. On the loop.
  void on_call_begun(const Id& context) override;
  void on_call_ended(const Id& context) override;
  wire::AutogradMetadata on_send(const Id& context, const Peer& to, const std::vector<const Value*>& values,
                                 const std::string& call, bool is_answer) override;
  void on_receive(const wire::AutogradMetadata& metadata, const Peer& from, const std::vector<const Value*>& values,
                  const std::string& call, bool is_answer) override;
  void on_thrown_away(const wire::AutogradMetadata& metadata, const Peer& from) override;

  // On the loop.
  Heard handle(const Peer& from, wire::Message& message);
  // The message could not be handled here: fails the one thing that it is about.
  void refuse(const Peer& from, const wire::Message& outline, const Error& why);
  void on_lost(const Peer& peer, const Error& error);
  void on_left(const Peer& peer);
  // The peer cannot answer for long (SessionConfig::on_lack): passes that need it fail with `lack`.
  void on_long_lack(const Peer& peer, const Error& lack);
  void on_restarted(const Peer& peer, const Error& error);
  bool is_idle() const;
  // At shutdown: ends all contexts and passes with CANCELLED.
  void stop();

  DautogradStats stats() const;  // any thread
  // On the loop. contexts() are in the order of their numbers; context() has the sends, and throws why it is over.
  std::vector<ContextSnapshot> contexts() const;
  ContextSnapshot context(const Id& id) const;
  std::vector<PassSnapshot> open_passes(size_t most) const;  // on the loop

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distag
