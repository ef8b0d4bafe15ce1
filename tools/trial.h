#pragma once

#include <chrono>
#include <string>

namespace distag_tool {

struct Trial {
  double loss_before = 0;
  double loss_after = 0;
  std::chrono::microseconds start{0};  // of both workers, until they have met
  std::chrono::microseconds step{0};
};

// Two workers of this process meet in an empty folder, through the sockets that two processes would use, and train a
// weight for one step: forward through both, backward through both, an optimizer. Throws std::runtime_error.
Trial train_one_step(const std::string& folder);

}  // namespace distag_tool
