#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/future.h"
#include "rpc/rpc.h"
#include "session/session.h"

namespace distag {

// The share of a call in the budget for its peer: "Credit" in schemas/calls.fbs. Set by the maker of the call, then
// changed only by Credit.
//
//   none    -> waiting   admit(): the call waits until the peer has taken others
//   none    -> counted   admit(): the call goes out
//   waiting -> counted   next()
//   waiting, counted -> none   give_back(): the call never goes out
struct CreditClaim {
  enum class State : uint8_t { kNone, kWaiting, kCounted };

  uint64_t cost = 0;      // 0: the call never waits
  bool has_time = false;  // may wait however much waits already
  bool is_open = false;   // counts towards the limit of open calls
  State state = State::kNone;
};

// A call made here. Its future is a member, so that a call costs one allocation. Made on any thread, then used only on
// the loop, except for the future.
struct OutgoingCall {
  // The arguments, in the form in which they travel, until the call is sent.
  struct Payload {
    Values args;
    std::shared_ptr<const wire::Packed> packed;  // replaces `args` when set
    Values originals;                            // with a context: the arguments with history, until numbered
  };

  struct Times {
    Nanos begun = 0;  // when it was made
    Nanos deadline = kNever;
    Nanos timeout = kForever;  // for the text of a deadline error
  };

  // Adds to an error which call it belongs to, if there is memory to.
  Error named(Error error) const noexcept;
  // The number of the message decides whether the call may have run.
  Error failure(Status status, std::string text) const;

  Future<Value> future;
  Id id;
  Id context;
  Incarnation to = 0;
  std::shared_ptr<const Peer> peer;
  std::string function;
  std::string label;
  std::shared_ptr<const TraceParent> trace_parent;
  Payload payload;
  Times times;
  std::shared_ptr<Invocation> within;     // until the call is over
  std::shared_ptr<wire::Reference> kept;  // the result stays there under this name; held until numbered
  Session::Ticket ticket = 0;
  CreditClaim claim;
  bool is_numbered = false;
  bool is_in_context = false;  // on_call_ended is owed
};

}  // namespace distag
