#pragma once

#include <deque>
#include <memory>

#include "base/fd_loop.h"
#include "transport/transport.h"
#include "transport/zmq/lent_frames.h"

namespace distag {

// A socket that the loop serves. Held by shared_ptr, because a callback may destroy the connection it belongs to.
class ZmqHandler {
 public:
  virtual ~ZmqHandler() = default;

  // Handles what there is on the socket, within bounds. True: there may be more. On the loop.
  virtual bool handle() = 0;

 private:
  friend class ZmqContext;
  bool to_be_checked_ = false;
};

// A ZeroMQ context with one IO thread, and the loop's side of its sockets. On the loop. The sockets hold it by
// shared_ptr, so it goes after the last of them.
//
// The descriptor of a ZeroMQ socket is edge-triggered: it becomes readable only when something comes while nothing was
// known to be there, and each call on the socket may take that in silently. So after each call the socket is looked at
// again before the loop sleeps: check_later.
class ZmqContext {
 public:
  explicit ZmqContext(FdLoop& loop);
  ~ZmqContext();  // waits for the IO thread to close what was closed before
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  void* handle() const { return context_; }
  FdLoop& loop() const { return loop_; }
  const std::shared_ptr<LentFrames>& lent_frames() const { return lent_frames_; }

  // A ZeroMQ socket of the type; nullptr with zmq_errno(). Asked for again while memory is short.
  void* open_socket(int type);

  // Calls libzmq, whose containers may throw.
  template <typename Call>
  auto call(Call&& libzmq) {
    try {
      return libzmq();
    } catch (...) {
      is_left_alone_ = true;
      throw;
    }
  }

  // From now on the handler is called when the descriptor tells of something, and once to begin with.
  void watch(int fd, const std::shared_ptr<ZmqHandler>& handler);
  void unwatch(int fd);
  void check_later(const std::shared_ptr<ZmqHandler>& handler);

  // For names of monitors.
  uint64_t next_number() { return ++last_number_; }

 private:
  bool check();

  FdLoop& loop_;
  const std::shared_ptr<LentFrames> lent_frames_;
  void* context_ = nullptr;
  // libzmq ran out of memory in the middle of a call, which may leave a socket or thread that nobody can end: to
  // terminate the context would take for ever.
  bool is_left_alone_ = false;
  uint64_t idle_check_ = 0;
  uint64_t last_number_ = 0;
  std::deque<std::weak_ptr<ZmqHandler>> to_check_;
};

}  // namespace distag
