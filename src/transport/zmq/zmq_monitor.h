#pragma once

#include <memory>

#include "base/clock.h"
#include "transport/zmq/zmq_context.h"

namespace distag {

// The events that libzmq's IO thread tells about a socket's connections. On the loop. To be destroyed before the
// socket: the IO thread waits for room in a monitor that nobody reads, so it is told to stop first.
class ZmqMonitor {
 public:
  // Throws OUT_OF_MEMORY when sockets run out.
  ZmqMonitor(ZmqContext& context, void* socket);
  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  int fd() const { return fd_; }

  struct News {
    bool connected = false;  // the handshake is over
    bool dropped = false;    // the connection is gone, or could not be made
    bool denied = false;     // because the sides do not agree on keys
  };
  // The news since the last look, up to the end of the connection.
  News look();

 private:
  void* monitored_;
  void* pair_ = nullptr;
  int fd_ = -1;
};

}  // namespace distag
