#pragma once

#include <cstddef>

#include "capi/context.h"
#include "rpc/rpc.h"

namespace distag::capi {

// The arguments that the host gives for a call.
struct CallArguments {
  distag_context* context;
  const char* to;
  const char* function;
  distag_value* const* args;
  size_t arg_count;
  const distag_call_options* options;
};

CallRequest make_call_request(distag_worker& worker, const CallArguments& given);

// The id of a context, which has to be one of the worker; {0,0} for NULL.
Id need_context_of(distag_worker& worker, distag_context* context);

}  // namespace distag::capi
