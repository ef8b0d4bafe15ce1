#pragma once

#include <functional>
#include <memory>

#include "base/future.h"
#include "group/report.h"
#include "session/session.h"
#include "tensor/value.h"

namespace distag {

// The answer that is still owed to a request. Thread-safe. Dropping the last one unfinished fails the request with
// REMOTE, once the function has returned: should it fail, its own failure is the answer.
class PendingReply {
 public:
  virtual ~PendingReply() = default;
  // False when it was finished before, or its worker was shut down. When the request is over otherwise (cancelled,
  // late, caller lost) the answer is dropped, and this is true once.
  virtual bool finish(Value value) = 0;
  virtual bool fail(Error error) = 0;
  virtual bool is_cancelled() const = 0;
};

// A request of another member's group to that of this one.
struct GroupCall {
  const Peer& from;
  const Values& args;
  std::function<std::shared_ptr<PendingReply>()> defer;
};

// The layer above as the group sees it: the calls, which carry the group's own requests too, and end with the shutdown.
// Installed before the start; on the loop.
class GroupService {
 public:
  virtual ~GroupService() = default;

  // Calls a function of another member, without a deadline: the member's loss ends it. Throws as Rpc::call.
  virtual std::shared_ptr<Future<Value>> ask(const Peer& to, const char* function, Values args) = 0;

  virtual bool is_idle() const = 0;
  // From now on requests of others are refused; those that run go on.
  virtual void refuse_new() = 0;
  // Takes no more, ends the open calls with `why`, which may take several tasks of the loop, and then calls back. Never
  // calls back when end() comes in between.
  virtual void end_calls(const Error& why, std::function<void()> on_ended) = 0;
  // Ends what is still open with `why`, and tells in the report what was open in all. The last thing that it is asked.
  virtual void end(const Error& why, ShutdownReport& report) = 0;
  // A member is lost or has left, of which the membership knows.
  virtual void on_gone(const Peer& peer, const Error& error) = 0;
  // No answer of a member can come, for want of something here or there: SessionConfig::on_lack.
  virtual void on_lack(const Peer& peer, const Error& lack, bool is_long) = 0;
};

}  // namespace distag
