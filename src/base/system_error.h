#pragma once

#include <string>

#include "base/error.h"

namespace distag {

// The error for a system call that failed with `reason`, a value of errno, and its remedy: OUT_OF_MEMORY for what is
// used up, DENIED where a sandbox (a seccomp profile, a container) does not have the call, INTERNAL else. `what` says
// what cannot be had: "a loop cannot be made".
Error system_error(const std::string& what, const char* call, int reason);

// Whether a sandbox denies a call that fails so.
bool is_denied_call(int reason);

}  // namespace distag
