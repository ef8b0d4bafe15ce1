#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "session/session.h"
#include "tensor/value.h"
#include "wire/message.h"

namespace distag {

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
  // gets metadata without a pair.
  virtual wire::AutogradMetadata on_send(const Id& context, const Peer& to, const std::vector<const Value*>& values,
                                         const std::string& call, bool is_answer) = 0;

  // When a call (is_answer false; makes the context known here) or an answer has arrived, before anybody sees its
  // values. Gives the tracked tensors their history. Throws Error to refuse a call with it: OVERLOADED, INVALID_STATE.
  virtual void on_receive(const wire::AutogradMetadata& metadata, const Peer& from,
                          const std::vector<const Value*>& values, const std::string& call, bool is_answer) = 0;

  // When a call that is refused, or an answer without a waiter, has arrived: its values are dropped, and its
  // sender does not tell again what it tells here. Maybe after on_receive.
  virtual void on_thrown_away(const wire::AutogradMetadata& metadata, const Peer& from) = 0;
};

}  // namespace distag
