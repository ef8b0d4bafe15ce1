#pragma once

#include "base/task.h"

namespace distag {

// Runs the task here and now; but one that comes up within another of them on the same thread runs right after that one
// instead. So what passes along a chain of any length takes no stack for its links.
void run_flat(Task task);

}  // namespace distag
