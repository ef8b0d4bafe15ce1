#pragma once

#include <memory>
#include <string>

#include "base/future.h"
#include "rpc/rpc.h"
#include "session/session.h"

namespace distag {

// A call made here. Its future is a part of it, so that a call costs one piece of memory. Made on any thread, then of
// the loop, except for the future.
struct OutgoingCall {
  Future<Value> future;
  Id id;
  Id context;
  Incarnation to = 0;
  std::shared_ptr<const Peer> peer;
  std::string function;
  std::string label;
  std::shared_ptr<const TraceParent> trace_parent;
  Values args;                                 // as they travel, until it is sent
  std::shared_ptr<const wire::Packed> packed;  // in their place
  Values originals;                            // with a context: the same with their history, until it is numbered
  Nanos begun = 0;                             // when it was made
  Nanos deadline = kNever;
  Nanos timeout = kForever;               // for the message of a deadline
  std::shared_ptr<Invocation> within;     // until it is over
  std::shared_ptr<wire::Reference> kept;  // the result stays there under this name; held until it is numbered
  Session::Ticket ticket = 0;
  bool is_numbered = false;
  bool is_in_context = false;  // on_call_ended is owed
  uint64_t cost = 0;           // of the budget for the peer; 0: it never waits
  bool has_time = false;       // to wait for the budget, however much waits
  bool is_waiting = false;     // for the budget
  bool is_counted = false;     // it is on its way by the budget's account
  bool is_open = false;        // one of those that are bounded
};

}  // namespace distag
