#pragma once

#include <string>

#include "base/error.h"

namespace distag {

// The error for a system call that failed with `reason`, a value of errno, and its remedy: OUT_OF_MEMORY for an
// exhausted resource, DENIED where a sandbox (a seccomp profile, a container) denies the call, INTERNAL else. `what`
// says what is impossible: "a loop cannot be made".
Error system_error(const std::string& what, const char* call, int reason);

// Whether a call that a sandbox denies fails with this.
bool is_denied_call(int reason);

}  // namespace distag
