#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/future.h"
#include "rpc/rpc.h"
#include "session/session.h"

namespace distag {

// The part of a call in the budget for its peer: "Credit" in schemas/calls.fbs. Given by the maker of the call, then
// changed by Credit alone.
//
//   none    -> waiting   admit(): it waits until the peer has taken others
//   none    -> counted   admit(): it goes out
//   waiting -> counted   next()
//   waiting, counted -> none   give_back(): it never goes out
struct CreditClaim {
  enum class State : uint8_t { kNone, kWaiting, kCounted };

  uint64_t cost = 0;      // 0: it never waits
  bool has_time = false;  // to wait, however much waits
  bool is_open = false;   // one of those that are bounded
  State state = State::kNone;
};

// A call made here. Its future is a part of it, so that a call costs one piece of memory. Made on any thread, then of
// the loop, except for the future.
struct OutgoingCall {
  // The arguments: until it is sent, as they travel.
  struct Payload {
    Values args;
    std::shared_ptr<const wire::Packed> packed;  // in their place
    Values originals;                            // with a context: the same with their history, until it is numbered
  };

  struct Times {
    Nanos begun = 0;  // when it was made
    Nanos deadline = kNever;
    Nanos timeout = kForever;  // for the message of a deadline
  };

  // An error of it says which call it is of, if there is memory to.
  Error named(Error error) const noexcept;
  // Whether it may have run is what the number of its message says.
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
  std::shared_ptr<Invocation> within;     // until it is over
  std::shared_ptr<wire::Reference> kept;  // the result stays there under this name; held until it is numbered
  Session::Ticket ticket = 0;
  CreditClaim claim;
  bool is_numbered = false;
  bool is_in_context = false;  // on_call_ended is owed
};

}  // namespace distag
