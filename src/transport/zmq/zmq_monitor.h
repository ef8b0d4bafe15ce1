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

  // Whether the connection is gone, or could not be made, by what has been told so far.
  bool has_dropped();
  // It could not be made because the sides do not agree on keys.
  bool was_denied() const { return was_denied_; }

 private:
  void* monitored_;
  void* pair_ = nullptr;
  int fd_ = -1;
  bool was_denied_ = false;
};

}  // namespace distag
