#pragma once

#include <vector>

#include "session/peer_record.h"
#include "session/replies.h"

namespace distag {

// The acknowledgements that this worker owes. Each goes with the next message to the peer, or alone after kAckDelay or
// kAckBytes; a PING is acknowledged at once. A record is in the list exactly while its `is_listed` is true. The timer
// runs for the acknowledgement that is due first. On the loop.
class Acknowledgements {
 public:
  Acknowledgements(StreamShared& shared, Replies& replies) : shared_(shared), replies_(replies) {}
  ~Acknowledgements() { shared_.loop.cancel_timer(timer_); }
  Acknowledgements(const Acknowledgements&) = delete;
  Acknowledgements& operator=(const Acknowledgements&) = delete;

  // Reserves memory, so that nothing here allocates for up to this number of peers.
  void make_room(size_t peers);
  // Called for each message of the peer, new or repeated.
  void note_received(PeerRecord& record, size_t bytes, bool is_ping = false);
  // Sends an acknowledgement alone and at once. While this worker's connection to the peer is not open, a WELCOME on
  // the connection that the peer has dialled carries it. That WELCOME goes at most once every kAckAgain, or at once if
  // `is_last` or if this worker lacks something for the dial, which WELCOME then names.
  void send(PeerRecord& record, bool is_last = false);
  // Must be called before the record is destroyed.
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
