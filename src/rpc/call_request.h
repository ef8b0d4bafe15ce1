#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/trace_parent.h"
#include "session/session.h"
#include "tensor/value.h"
#include "wire/message.h"

namespace distag {

class Invocation;

// The function of the library by which members query each other's state. The answer is a text in JSON. Such calls are
// neither kept nor traced, so that a query does not show itself.
inline constexpr const char* kLook = "distag.look";

struct CallRequest {
  Id context;  // {0,0}: none
  std::string to;
  std::string function;
  Values args;
  Nanos timeout = 0;                   // 0: the worker's default; kForever: none
  std::shared_ptr<Invocation> within;  // the call being answered, which bounds deadline and cancellation
  std::string label;
  std::shared_ptr<const TraceParent> trace_parent = {};  // nullptr: none
  Incarnation to_incarnation = 0;                        // 0: the latest of that name
  // While the peer has taken too few of the earlier requests, a call waits: without limit if `has_time`, otherwise it
  // fails with OVERLOADED when too much waits already. A call of the group itself (`is_control`) never waits.
  bool has_time = false;
  bool is_control = false;
  // If set, the result stays at the callee, as the reference that this function makes. The answer is null then.
  std::function<std::shared_ptr<wire::Reference>(const std::shared_ptr<const Peer>& callee)> keep_as = nullptr;
};

}  // namespace distag
