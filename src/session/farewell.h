#pragma once

#include <memory>

#include "session/peer_table.h"
#include "session/self_stream.h"

namespace distag {

// The end of this worker's part in the group: sends LEAVE to each peer with a stream, then runs `done` once, when all
// messages are acknowledged or at the deadline. Nothing is sent once it has begun, so a drained stream stays drained.
// On the loop.
class Farewell {
 public:
  Farewell(StreamShared& shared, const PeerTable& peers, const SelfStream& self)
      : shared_(shared), peers_(peers), self_(self) {}
  ~Farewell() { shared_.loop.cancel_timer(timer_); }
  Farewell(const Farewell&) = delete;
  Farewell& operator=(const Farewell&) = delete;

  bool has_begun() const { return has_begun_; }
  void begin(Nanos deadline, Task done);
  // An event that the farewell may wait for has come.
  void on_progress();
  // Called when a peer is taken out of the table.
  void count_anew() { settled_ = 0; }
  // Ends without running `done`.
  void close();

  // True when nothing is unacknowledged now.
  bool is_drained() const;

 private:
  struct Done {
    Task task;
    TaskPlace place;
  };

  void tell() noexcept;

  StreamShared& shared_;
  const PeerTable& peers_;
  const SelfStream& self_;
  bool has_begun_ = false;
  std::shared_ptr<Done> done_;  // set from begin() until it is posted
  size_t settled_ = 0;          // the first `settled_` peers get nothing more
  Loop::TimerId timer_ = 0;
};

}  // namespace distag
