#pragma once

#include <functional>
#include <memory>

#include "base/future.h"
#include "group/report.h"
#include "session/session.h"
#include "tensor/value.h"

namespace distag {

// The answer that is still owed to a request. Thread-safe. If the last reference is released unfinished, the request
// fails with REMOTE once the function has returned; a failure of the function itself takes precedence.
class PendingReply {
 public:
  virtual ~PendingReply() = default;
  // Returns false when it was finished before, the function has failed by itself, or its worker was shut down. If the
  // request has ended otherwise (cancelled, late, caller lost), the answer is dropped and this returns true once.
  virtual bool finish(Value value) = 0;
  virtual bool fail(Error error) = 0;
  virtual bool is_cancelled() const = 0;
};

// A request of another member's group to this one's.
struct GroupCall {
  const Peer& from;
  const Values& args;
  std::function<std::shared_ptr<PendingReply>()> defer;
};

// The layer of calls, as the group uses it: it also carries the group's own requests, and ends with the shutdown.
// Installed before the start; on the loop.
class GroupService {
 public:
  virtual ~GroupService() = default;

  // Calls a function of another member, without a deadline: the member's loss ends the call. Throws what Rpc::call
  // throws.
  virtual std::shared_ptr<Future<Value>> ask(const Peer& to, const char* function, Values args) = 0;

  virtual bool is_idle() const = 0;
  // Refuses requests of others from now on; running requests go on.
  virtual void refuse_new() = 0;
  // Takes no more calls, ends the open ones with `why`, which may take several tasks of the loop, and then calls
  // `on_ended`. Does not call it if end() comes in between.
  virtual void end_calls(const Error& why, std::function<void()> on_ended) = 0;
  // Ends all calls still open with `why`, and reports how many were open in all. The last call of this interface.
  virtual void end(const Error& why, ShutdownReport& report) = 0;
  // A member is lost or has left; the membership knows it already.
  virtual void on_gone(const Peer& peer, const Error& error) = 0;
  // No answer of a member can come, because this worker or the member lacks a resource: SessionConfig::on_lack.
  virtual void on_lack(const Peer& peer, const Error& lack, bool is_long) = 0;
};

}  // namespace distag
