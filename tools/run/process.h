#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "run/descriptor.h"

namespace distag_tool {

// The state that the launcher changed for itself, and that each rank gets back.
struct Inherited {
  sigset_t mask;
  sighandler_t on_closed_pipe;  // of SIGPIPE
  rlimit descriptors;
};

// A process that was started: the leader of a process group of its own, so that a signal reaches what it starts, too,
// and one from the terminal only the launcher. It is killed when the launcher ends in any way.
struct Process {
  pid_t id = 0;
  Descriptor output;
  Descriptor errors;
};

// Throws std::system_error with the errno of what failed; from the program itself (ENOENT ...) the text is its name.
Process start_process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                      const Inherited& inherited);

}  // namespace distag_tool
