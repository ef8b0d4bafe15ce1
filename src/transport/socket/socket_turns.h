#pragma once

#include <deque>
#include <memory>

#include "base/fd_loop.h"

namespace distag {

// A socket with work that can wait until the tasks of this turn of the loop are done: the bytes of many messages then
// need one system call. Held by shared_ptr, because a callback may destroy the connection it belongs to.
class SocketWork {
 public:
  virtual ~SocketWork() = default;

  // Does the pending work, within bounds. True: there is more. On the loop.
  virtual bool take_turn() = 0;

 private:
  friend class SocketTurns;
  bool is_due_ = false;
};

// Gives the sockets of a transport their turns, before the loop sleeps. On the loop.
class SocketTurns : public std::enable_shared_from_this<SocketTurns> {
 public:
  explicit SocketTurns(FdLoop& loop);
  ~SocketTurns();
  SocketTurns(const SocketTurns&) = delete;
  SocketTurns& operator=(const SocketTurns&) = delete;

  FdLoop& loop() const { return loop_; }

  // Schedules a turn at the end of this turn of the loop, once. May throw bad_alloc.
  void add(const std::shared_ptr<SocketWork>& work);

 private:
  bool run();

  FdLoop& loop_;
  uint64_t idle_check_ = 0;
  std::deque<std::weak_ptr<SocketWork>> due_;
};

}  // namespace distag
