#include "rpc/outgoing_call.h"

#include <utility>

#include "base/each_step.h"
#include "rpc/call_names.h"
#include "rpc/rpc_shared.h"

namespace distag {

Error OutgoingCall::named(Error error) const noexcept {
  EachStep each;
  each([this, &error] { error.add_context(describe_call(function, label, *peer)); });
  return error;
}

Error OutgoingCall::failure(Status status, std::string text) const {
  return named(Error(status, std::move(text)).set_may_have_run(is_numbered));
}

}  // namespace distag
