#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace distag {

// The result of a worker's shutdown.
struct ShutdownReport {
  bool clean = true;
  std::vector<std::string> missing;
  int64_t open_calls = 0;
  std::vector<std::string> leaked_rrefs;
};

}  // namespace distag
