#pragma once

#include <vector>

#include "session/peer_record.h"
#include "session/replies.h"

namespace distag {

// The acknowledgements that this worker owes: each goes with the next message to the peer, else alone after kAckDelay
// or kAckBytes; that of a PING goes at once. A record is in the list exactly while its `is_listed` says so, and the
// timer runs for the first that is due. On the loop.
class Acknowledgements {
 public:
  Acknowledgements(StreamShared& shared, Replies& replies) : shared_(shared), replies_(replies) {}
  ~Acknowledgements() { shared_.loop.cancel_timer(timer_); }
  Acknowledgements(const Acknowledgements&) = delete;
  Acknowledgements& operator=(const Acknowledgements&) = delete;

  // For that number of peers nothing here needs memory.
  void make_room(size_t peers);
  // A message of the peer has come, new or repeated.
  void note_received(PeerRecord& record, size_t bytes, bool is_ping = false);
  // Alone, and now. As long as this worker's connection is not open it goes by WELCOME, on the connection that the peer
  // has dialled: at once where that cannot be dialled for want of something here, which WELCOME says, or `is_last`;
  // else once every kAckAgain.
  void send(PeerRecord& record, bool is_last = false);
  // Before the record is destroyed.
  void forget(PeerRecord& record);
  void close();

 private:
  void on_timer();
  void list(PeerRecord& record);
  void start_timer(Nanos due) noexcept;

  StreamShared& shared_;
  Replies& replies_;
  std::vector<PeerRecord*> owed_;
  Loop::TimerId timer_ = 0;
  Nanos timer_due_ = kNever;
};

}  // namespace distag
