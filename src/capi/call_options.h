#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "distag.h"
#include "rpc/rpc.h"

namespace distag::capi {

struct CallOptions {
  Nanos timeout = 0;                   // 0: the worker's default; kForever: none
  std::shared_ptr<Invocation> within;  // nullptr: none
  std::string label;                   // empty: none
};

// The options of the host; NULL for the defaults.
CallOptions read_call_options(const distag_call_options* given);

}  // namespace distag::capi
