#pragma once

#include "session/handshake.h"

namespace distag {

// Messages that come on the connections that peers have dialled. Only the peer's next message takes effect. Lower
// numbers are repetitions, of which only the acknowledgement is new; a higher number breaks the protocol. Either the
// number of a message is counted and the message is handled in the end, or the message has no effect and comes again.
// On the loop.
class Receiver {
 public:
  Receiver(StreamShared& shared, SessionLog& log, SessionEvents& events, Replies& replies, Acknowledgements& acks,
           PeerTable& peers, Standings& standings, Handshake& handshake)
      : shared_(shared),
        log_(log),
        events_(events),
        replies_(replies),
        acks_(acks),
        peers_(peers),
        standings_(standings),
        handshake_(handshake) {}

  void on_message(const ConnectionToken& from, Frames frames);
  // Part of a message has come: over a slow link it takes a while until a message is whole.
  void on_part(const ConnectionToken& from);
  // Returns false if there is no memory for the message now.
  bool on_decoded(PeerRecord& record, Inbox::Decoded& decoded);

 private:
  void take_numbered(PeerRecord& record, const wire::Arrival& arrival, Frame header, Frames frames, size_t bytes);
  void take_unnumbered(PeerRecord* record, const ConnectionToken& from, const wire::Arrival& arrival,
                       const Frames& frames);
  void deliver(PeerRecord& record, Inbox::Decoded& decoded);
  void deliver(PeerRecord& record, wire::Message& message);

  StreamShared& shared_;
  SessionLog& log_;
  SessionEvents& events_;
  Replies& replies_;
  Acknowledgements& acks_;
  PeerTable& peers_;
  Standings& standings_;
  Handshake& handshake_;
  Inbox::Place spare_;  // for a message that cannot even be refused yet
};

}  // namespace distag
