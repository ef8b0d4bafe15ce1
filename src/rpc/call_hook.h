#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "session/session.h"
#include "tensor/value.h"
#include "wire/message.h"

namespace distag {

// The layer above, as calls use it (distributed autograd). Installed by the worker before the start; all on the loop.
class CallHook {
 public:
  virtual ~CallHook() = default;

  // Before a call of this worker in a context is queued. Throws INVALID_STATE (ended) or INVALID_ARGUMENT (not a
  // context of this worker). Each success is followed by one on_call_ended, when its future has completed.
  virtual void on_call_begun(const Id& context) = 0;
  virtual void on_call_ended(const Id& context) = 0;

  // When a call or an answer in a context gets its number: notes the tensors that require grad among `values` and
  // returns the metadata that travels with them. `call` names the call in errors: `call "embed" on "ps1"`. An answer
  // for a context that is over gets metadata without a pair.
  virtual wire::AutogradMetadata on_send(const Id& context, const Peer& to, const std::vector<const Value*>& values,
                                         const std::string& call, bool is_answer) = 0;

  // When a call (is_answer false; makes the context known here) or an answer has arrived, before anything else reads
  // its values. Gives the tracked tensors their history. Throws Error to refuse a call with it: OVERLOADED,
  // INVALID_STATE.
  virtual void on_receive(const wire::AutogradMetadata& metadata, const Peer& from,
                          const std::vector<const Value*>& values, const std::string& call, bool is_answer) = 0;

  // When a refused call, or an answer without a waiter, has arrived: its values are dropped, and its sender will not
  // repeat this metadata. May follow on_receive.
  virtual void on_thrown_away(const wire::AutogradMetadata& metadata, const Peer& from) = 0;
};

}  // namespace distag
