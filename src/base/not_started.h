#pragma once

#include <string_view>

#include "base/error.h"

namespace distag {

// The end of the text of a call on a worker that is not started. Where that call stands in a chain, the failure of the
// start before it says more, and stays: see capi/boundary.cpp.
inline constexpr std::string_view kNotStarted = "the worker is not started";

inline bool is_not_started(const Error& error) {
  return error.origin_rank() < 0 && error.message().ends_with(kNotStarted);
}

}  // namespace distag
