#pragma once

#include <memory>

#include "base/clock.h"
#include "transport/zmq/zmq_context.h"

namespace distag {

// What libzmq's IO thread tells about a socket's connections. On the loop. To be destroyed before the socket: the IO
// thread waits for room in a monitor that nobody reads, so it is told to stop first.
class ZmqMonitor {
 public:
  enum class Event {
    kNone,
    kDropped,  // a connection is gone
    kClosed,   // a dial has failed, or a listener is closed
  };

  // Throws OUT_OF_MEMORY when sockets run out.
  ZmqMonitor(ZmqContext& context, void* socket);
  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  int fd() const { return fd_; }

  // The next event that matters, kNone when there is none now.
  Event next();

  // Waits for the event, at most `timeout`. Blocks the loop: only for what the IO thread does at once.
  bool wait_for(Event event, Nanos timeout);

 private:
  bool receive(Event& event);

  void* monitored_;
  void* pair_ = nullptr;
  int fd_ = -1;
};

}  // namespace distag
