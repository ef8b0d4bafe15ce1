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
  // Alone, and now. A peer that cannot be dialled for want of something here hears that by WELCOME, on the connection
  // that it has dialled.
  void send(PeerRecord& record);
  // Before the record is destroyed.
  void forget(PeerRecord& record);
  void close();

 private:
  void on_timer();
  void start_timer(Nanos due) noexcept;

  StreamShared& shared_;
  Replies& replies_;
  std::vector<PeerRecord*> owed_;
  Loop::TimerId timer_ = 0;
};

}  // namespace distag
