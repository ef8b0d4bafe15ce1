#pragma once

#include <cstddef>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "faults/fault_points.h"

namespace distag::faults {

// The words of a handshake: the greeting of both sides, then in turn those of the client and of the server.
inline constexpr const char* kHandshakeSteps[] = {"Curve.greeting", "Curve.hello", "Curve.welcome", "Curve.initiate",
                                                  "Curve.ready"};

// The handshakes of CURVE (rfc.zeromq.org/spec/26) as they pass through the sockets of this process, of either engine:
// a fault point for each of their words. Any thread; allocates nothing unless bytes vanish.
class Handshakes {
 public:
  // Whether the bytes vanish, which are to go out by `fd` or have come by it. Where some did, all that follows them on
  // their way by the same connection does: a stream has no gaps.
  bool lose(int fd, Way way, std::string_view bytes);
  // The bytes have come by a socket and were not looked at yet, or were handed on.
  void reach(Way way, std::string_view bytes);
  void forget(int closed_fd);

 private:
  std::mutex mutex_;
  std::set<std::pair<int, Way>> lost_;  // directions of connections that swallow everything
};

// The handshakes of this process.
Handshakes& handshakes();

}  // namespace distag::faults
