#pragma once

#include "session/handshake.h"

namespace distag {

// Messages that come on the connections that others have dialled. Of each peer exactly the next one takes effect: lower
// ones are repetitions, of which only the acknowledgement is new, and a higher one breaks the protocol. A message
// either has its number counted and is heard in the end, or nothing of it has taken effect and it comes again. On the
// loop.
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
  // Over a slow link it is a while until a message is whole.
  void on_part(const ConnectionToken& from);
  // False: there is no memory for it now.
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
  Inbox::Place spare_;  // for a message that can not even be refused yet
};

}  // namespace distag
