#pragma once

#include "base/fd_loop.h"

namespace distag {

// Notes each task of a loop that takes more than 5 ms of the processor in the file that the build names: a line of its
// time in microseconds, its page faults, the process, its program, and the task. tests/long_tasks judges them after a
// run of the suite. Empty in builds that name no file.
FdLoop::Watchdog note_long_tasks();

}  // namespace distag
