#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "group/membership.h"
#include "rpc/open_call.h"

// The words for states, times and numbers in the reports of a worker and of its group.
namespace distag {

inline const char* state_word(Standing standing) {
  switch (standing) {
    case Standing::kMember:
      return "alive";
    case Standing::kLeft:
      return "left";
    case Standing::kLost:
    case Standing::kRestarted:  // until its next incarnation is known
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

// All 64 bits, which do not fit into every reader's JSON numbers.
inline std::string in_hex(uint64_t bits) { return fmt::format("{:#018x}", bits); }

}  // namespace distag
