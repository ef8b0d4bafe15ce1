#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace distag_tool {

struct RunOptions {
  int rank_count = 0;
  int restart_count = 0;             // times that each rank is started again when it fails
  std::chrono::seconds grace{5};     // from the first signal to SIGKILL
  std::string trace;                 // the folder for traces of all workers; empty: as in the environment
  std::vector<std::string> command;  // the program and its arguments
};

// Parses the arguments of "run ...". Empty if they are wrong, and then the reason was printed to stderr.
std::optional<RunOptions> parse_run_options(std::span<char*> arguments);

}  // namespace distag_tool
