#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/log_throttle.h"
#include "worker/layers.h"
#include "worker/routes.h"

namespace distag {

// Leads the messages of a started worker to the layers that take them, by the table in worker/routes.h. A failure of
// this worker is not a fault of the peer: it ends only what the message is about, or the message comes again. The
// router knows no loop: Arrivals asserts that it is called on the loop.
class Router {
 public:
  // `initiators`: the only other workers whose passes this one takes part in; empty: all are.
  Router(const Clock& clock, Log& log, Layers& layers, std::vector<std::string> initiators)
      : clock_(clock), log_(log), layers_(layers), initiators_(std::move(initiators)) {}

  // Throws Violation, which ends the peer, and OUT_OF_MEMORY for a message that waits for memory.
  Heard lead(const Peer& from, wire::Message& message);
  // Ends what the message is about with `why`, here and at the peer.
  void refuse(const Peer& from, wire::Message& outline, const Error& why);

 private:
  Heard lead(Taker taker, const Peer& from, wire::Message& message);
  Heard lead_to_group(const Peer& from, wire::Message& message);
  bool deny(const Peer& from, wire::Message& message);
  void note_refusal(const std::string& text);

  const Clock& clock_;
  Log& log_;
  Layers& layers_;
  const std::vector<std::string> initiators_;
  LogThrottle refusals_;
};

}  // namespace distag
