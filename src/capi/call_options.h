#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/trace_parent.h"
#include "capi/context.h"
#include "distag.h"
#include "rpc/rpc.h"

namespace distag::capi {

struct CallOptions {
  Nanos timeout = 0;                   // 0: the worker's default; kForever: none
  std::shared_ptr<Invocation> within;  // nullptr: none
  std::string label;                   // empty: none
  // The traceparent of the host, else that of the call being answered: `within`, the call that lent the context, or the
  // call whose function runs on this thread. nullptr: none.
  std::shared_ptr<const TraceParent> trace_parent;
};

// The options of the host; NULL for the defaults. `worker` counts a malformed traceparent; it and the context may be
// NULL.
CallOptions read_call_options(const distag_call_options* given, distag_worker* worker, distag_context* context);

}  // namespace distag::capi
