#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "transport/zmq/zmq_socket.h"

namespace distag {

// What a connection of a socket did, as libzmq tells it.
struct ZmqEvent {
  uint16_t number = 0;
  uint32_t value = 0;  // the descriptor, where the event has one
};

// The first part of an event: its number and value, in the order of bytes of this machine. nullopt for other bytes.
std::optional<ZmqEvent> parse_event(std::span<const std::byte> part);

// Reads the events of a socket, on the loop. Made before the socket binds or connects, and destroyed before the socket:
// the IO thread waits for room in a monitor without a reader, so the monitor is told to stop before its reading end
// closes, and that end has no bound.
class ZmqMonitor {
 public:
  // `events`: a mask of ZMQ_EVENT_. Throws OUT_OF_MEMORY when descriptors run out.
  ZmqMonitor(ZmqSocket& monitored, int events);
  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  // Readable once an event comes after next() gave none.
  int fd() const { return reader_.fd(); }
  // The next event; nullopt when none is there.
  std::optional<ZmqEvent> next();
  // Reads events until one of the number comes; false after the timeout. Blocks.
  bool wait_for(uint16_t number, Nanos timeout);

 private:
  ZmqSocket& monitored_;
  ZmqSocket reader_;
};

}  // namespace distag
