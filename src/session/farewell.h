#pragma once

#include <memory>

#include "session/peer_table.h"
#include "session/self_stream.h"

namespace distag {

// The end of this worker's part in the group: LEAVE to each peer with a stream, then `done` once, when all have
// acknowledged all or at the deadline. Nothing is sent once it has begun, so a stream that is drained stays so. On the
// loop.
class Farewell {
 public:
  Farewell(StreamShared& shared, const PeerTable& peers, const SelfStream& self)
      : shared_(shared), peers_(peers), self_(self) {}
  ~Farewell() { shared_.loop.cancel_timer(timer_); }
  Farewell(const Farewell&) = delete;
  Farewell& operator=(const Farewell&) = delete;

  bool has_begun() const { return has_begun_; }
  void begin(Nanos deadline, Task done);
  // Something that it may wait for has come.
  void on_progress();
  // A peer is taken out of the table.
  void count_anew() { settled_ = 0; }
  // Without a word.
  void close();

  // Nothing is unacknowledged, here and now.
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
  std::shared_ptr<Done> done_;  // until it is told
  size_t settled_ = 0;          // the number of peers, the first ones, that get nothing more
  Loop::TimerId timer_ = 0;
};

}  // namespace distag
