#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/log_throttle.h"
#include "base/loop.h"
#include "coll/mesh_state.h"
#include "dautograd/snapshot.h"
#include "rpc/open_call.h"

namespace distag {

// The operations of a worker that have begun and not ended.
struct UnderWay {
  std::vector<OpenCall> calls;  // oldest first
  std::vector<PassSnapshot> passes;
  std::vector<WaitingCollective> collectives;
};

// A text for a log: the last event that ended with DEADLINE, DISCONNECTED or DIVERGED; the operations under way; and
// the last events, the latest first. Below 16 KiB, without control characters other than ends of lines.
std::string describe_break(Nanos now, const std::vector<FlightEvent>& last, const UnderWay& under_way);

// Writes that text to a worker's log after such an event, at most once a second.
class FlightLog : public std::enable_shared_from_this<FlightLog> {
 public:
  struct Environment {
    Loop& loop;
    Log& log;
    FlightRecorder& recorder;
    std::function<UnderWay()> under_way;  // on the loop
  };

  explicit FlightLog(Environment environment) : environment_(std::move(environment)) {}

  // Posts a task, which also sees other events that end meanwhile. Any thread. Needs no memory.
  void tell_soon() noexcept;

 private:
  void tell();

  const Environment environment_;
  std::atomic<bool> is_posted_{false};
  TaskPlace place_;
  LogThrottle throttle_;  // on the loop
};

}  // namespace distag
