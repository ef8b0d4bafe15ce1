#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/task.h"

namespace distag {

// Host callbacks around the life of a thread that distag starts.
struct ThreadHooks {
  std::function<void(const char* thread_name)> on_start;
  std::function<void(const char* thread_name)> on_stop;
};

// Starts a thread that runs `body` between the hooks. Should the first hook end the thread (pthread_exit), `body` runs
// all the same, and the second hook does not; the second hook may end the thread. Its name is cut to the 15 bytes the
// system shows. It blocks the signals that the calling thread blocks, and those that a process is sent from outside
// (SIGTERM and the like), and is never cancelled. Throws OUT_OF_MEMORY when the system has no thread left.
std::thread start_thread(const std::string& name, const ThreadHooks& hooks, Task body);

// Calls and destroys the task. A task that throws has a defect, which has no way to be reported and ends that task
// alone.
void run_guarded(Task task) noexcept;

}  // namespace distag
