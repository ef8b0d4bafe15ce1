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

// The function of the library under which members ask each other how they are. The answer is a text in JSON. Those who
// look are not what is looked at: such calls are neither kept nor traced.
inline constexpr const char* kLook = "distag.look";

struct CallRequest {
  Id context;  // {0,0}: none
  std::string to;
  std::string function;
  Values args;
  Nanos timeout = 0;                   // 0: the worker's default; kForever: none
  std::shared_ptr<Invocation> within;  // the call being answered: bounds deadline and cancellation
  std::string label;
  std::shared_ptr<const TraceParent> trace_parent = {};  // nullptr: none
  Incarnation to_incarnation = 0;                        // 0: the latest of that name
  // While the peer has taken too few of the requests before, it waits: as long as it takes, or OVERLOADED where too
  // much waits already. One of the group itself never waits.
  bool has_time = false;
  bool is_control = false;
  // Not empty: the result stays at the callee, as what this makes of it. The answer is null.
  std::function<std::shared_ptr<wire::Reference>(const std::shared_ptr<const Peer>& callee)> keep_as = nullptr;
};

}  // namespace distag
