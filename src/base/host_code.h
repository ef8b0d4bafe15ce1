#pragma once

#include <cxxabi.h>

#include "base/executor.h"
#include "base/floating_mode.h"
#include "base/task.h"

namespace distag {

// Sets where host code (deleters, destroy functions) runs that comes up on a thread of distag: the functions executor
// of the worker that owns the thread. nullptr, as on host threads: at once. Returns the executor that it replaces.
Executor* exchange_host_code_executor(Executor* executor);

// Runs `code` exactly once: on the calling thread's executor for host code, or at once when it has none. If that
// executor has stopped or stops first, the code runs where the task is destroyed.
void run_host_code(Task code);

// The thread that called host code was ended there (pthread_exit, pthread_cancel). Nothing of distag is unwound, as the
// host code has not returned and never will: the thread gives its place in a pool away, like a thread that waits, and
// is parked for as long as the process lives.
[[noreturn]] void park_for_good() noexcept;

// Every call of host code goes through here, with nothing between this and the host's function: the unwinding of an
// ended thread does not look ahead, so any destructor, catch (...) or noexcept on the way could end the process. The
// exception of such an end has no object, which a sanitizer takes for a null reference.
template <typename Call>
__attribute__((no_sanitize("undefined"))) decltype(auto) call_host(Call&& call) {
  const HostFloatingMode mode;  // outside of what is unwound
  try {
    return call();
  } catch (const abi::__forced_unwind&) {
    park_for_good();
  }
}

}  // namespace distag
