#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "run/descriptor.h"

namespace distag_tool {

// State that the launcher changes for itself, and restores in each rank.
struct Inherited {
  sigset_t mask;
  sighandler_t on_closed_pipe;  // of SIGPIPE
  rlimit descriptors;
};

// A started process: the leader of a process group of its own, so that a signal reaches also the processes that it
// starts, and a signal of the terminal reaches only the launcher. It is killed when the launcher ends in any way.
struct Process {
  pid_t id = 0;
  Descriptor output;
  Descriptor errors;
};

// Throws std::system_error with the errno; if the program itself cannot be run (ENOENT ...) the text is its name.
Process start_process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                      const Inherited& inherited);

}  // namespace distag_tool
