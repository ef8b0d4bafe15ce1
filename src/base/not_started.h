#pragma once

#include <string_view>

#include "base/error.h"

namespace distag {

// The end of the error text of a call on a worker that is not started. In a chain of calls the earlier failure of the
// start says more, and is kept: see capi/boundary.cpp.
inline constexpr std::string_view kNotStarted = "the worker is not started";

inline bool is_not_started(const Error& error) {
  return error.origin_rank() < 0 && error.message().ends_with(kNotStarted);
}

}  // namespace distag
