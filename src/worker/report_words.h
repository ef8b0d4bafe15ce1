#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "group/membership.h"
#include "rpc/open_call.h"

// How the reports of a worker and of its group say states, times and numbers.
namespace distag {

inline const char* state_word(Standing standing) {
  switch (standing) {
    case Standing::kMember:
      return "alive";
    case Standing::kLeft:
      return "left";
    case Standing::kLost:
    case Standing::kRestarted:  // until the one that has come after it is known
      return "lost";
  }
  return "unknown";
}

inline const char* stage_word(OpenCall::Stage stage) {
  switch (stage) {
    case OpenCall::Stage::kQueued:
      return "queued";
    case OpenCall::Stage::kSent:
      return "sent";
    case OpenCall::Stage::kWaiting:
      return "waiting";
    case OpenCall::Stage::kRunning:
      return "running";
    case OpenCall::Stage::kDeferred:
      return "deferred";
  }
  return "unknown";
}

inline double in_ms(Nanos time) { return static_cast<double>(time) / static_cast<double>(kMillisecond); }

// The 64 bits that no number of JSON holds everywhere.
inline std::string in_hex(uint64_t bits) { return fmt::format("{:#018x}", bits); }

}  // namespace distag
