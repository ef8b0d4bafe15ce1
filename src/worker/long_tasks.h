#pragma once

#include "base/fd_loop.h"

namespace distag {

// Writes each task of a loop that takes more than 5 ms of processor time to the file that the build names: a line with
// its time in microseconds, its page faults, the process, its program, and the task. tests/long_tasks checks them after
// a run of the suite. Empty in builds that name no file.
FdLoop::Watchdog note_long_tasks();

}  // namespace distag
