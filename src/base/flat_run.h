#pragma once

#include "base/task.h"

namespace distag {

// Runs the task at once; but a task that comes up within another one on the same thread runs right after that one. So a
// chain of any length takes no stack for its links.
void run_flat(Task task);

}  // namespace distag
