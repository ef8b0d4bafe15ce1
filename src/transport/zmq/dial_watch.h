#pragma once

#include <cstdint>
#include <utility>

#include "base/own_descriptors.h"
#include "transport/socket/received_bytes.h"
#include "transport/zmq/zmq_monitor.h"

namespace distag {

// The connection that a DEALER dials, from the events of its monitor up to the connection's end: libzmq dials again
// some time after that, which is not wanted. Destroyed before the socket. On the loop.
class DialWatch {
 public:
  // `is_for_one_user`: the other side has to be a process of this user.
  DialWatch(ZmqSocket& socket, bool is_for_one_user);

  // When it becomes readable, there is news. As nothing else uses the monitor, it shows all events after the first
  // look.
  int fd() const { return monitor_.fd(); }
  void note_news() { has_news_ = true; }
  // Reads the news, if there are any.
  void look() {
    if (std::exchange(has_news_, false)) read_news();
  }

  bool is_shaken() const { return is_shaken_; }  // the handshake has ended well
  bool is_over() const { return is_over_; }
  bool is_denied() const { return is_denied_; }  // by either side
  // Bytes that have come on it, until libzmq has closed it.
  uint64_t heard_bytes() const { return noted_.is_there() ? received_bytes(descriptor_) : 0; }
  bool is_connected() const { return descriptor_ >= 0; }
  bool has_heard() const { return received_bytes(descriptor_) > 0; }

 private:
  void read_news();
  bool read_events();
  void note(const ZmqEvent& event);

  ZmqMonitor monitor_;
  const bool is_for_one_user_;
  int descriptor_ = -1;  // as the monitor named it
  NotedSocket noted_;    // the same, once it is known to be that
  bool is_shaken_ = false;
  bool is_over_ = false;
  bool is_denied_ = false;
  bool has_news_ = true;
};

}  // namespace distag
