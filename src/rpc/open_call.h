#pragma once

#include <string>

#include "base/clock.h"
#include "base/ids.h"

namespace distag {

// A call that is not over, for reports.
struct OpenCall {
  enum class Stage {
    kQueued,    // made here, and not on its way yet
    kSent,      // made here
    kWaiting,   // served here: the function has not begun
    kRunning,   // served here
    kDeferred,  // served here: the function has returned and owes the answer
  };

  Stage stage;
  std::string function;
  std::string label;
  std::string peer;  // the other side
  int32_t peer_rank = -1;
  Id context;  // {0,0}: none
  Nanos age = 0;
  Nanos time_left = kForever;
};

}  // namespace distag
