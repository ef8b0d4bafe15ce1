#pragma once

#include "run/options.h"

namespace distag_tool {

// Runs the ranks of a group until all have ended, and gives the exit code: 0; that of the first rank that failed (128 +
// n when signal n killed it); 128 + n when signal n told this process to end; 126 or 127 when the program cannot be
// run.
int run(const RunOptions& options);

}  // namespace distag_tool
