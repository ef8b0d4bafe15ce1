#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "transport/zmq/zmq_socket.h"

namespace distag {

// An event of a socket's connection, reported by libzmq.
struct ZmqEvent {
  uint16_t number = 0;
  uint32_t value = 0;  // the descriptor, if the event has one
};

// Parses the first part of an event: number and value, in the byte order of this machine. nullopt for other bytes.
std::optional<ZmqEvent> parse_event(std::span<const std::byte> part);

// Reads the events of a socket, on the loop. Made before the socket binds or connects, and destroyed before the socket.
// The IO thread waits for room in a monitor without a reader: so the monitor is stopped before its reading end closes,
// and that end has no limit.
class ZmqMonitor {
 public:
  // `events`: a mask of ZMQ_EVENT_. Throws OUT_OF_MEMORY when descriptors run out.
  ZmqMonitor(ZmqSocket& monitored, int events);
  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  // Becomes readable if an event comes after next() gave none.
  int fd() const { return reader_.fd(); }
  // The next event; nullopt when no event waits.
  std::optional<ZmqEvent> next();
  // Reads events until one with that number comes; false after the timeout. Blocks.
  bool wait_for(uint16_t number, Nanos timeout);

 private:
  ZmqSocket& monitored_;
  ZmqSocket reader_;
};

}  // namespace distag
