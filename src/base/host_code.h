#pragma once

#include "base/executor.h"
#include "base/task.h"

namespace distag {

// Where host code (deleters, destroy functions) runs that comes up on a thread of distag: the functions executor of the
// worker that owns the thread. nullptr, as on threads of the host: right there. Gives what it replaces.
Executor* exchange_host_code_executor(Executor* executor);

// Runs `code` exactly once: on the calling thread's executor for host code, or here when it has none. Should that
// executor have stopped, or stop before, the code runs where the task is destroyed.
void run_host_code(Task code);

}  // namespace distag
