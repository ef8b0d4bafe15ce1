#pragma once

#include <map>

#include "session/liveness.h"
#include "session/session_log.h"

namespace distag {

// How streams begin: handles HELLO from workers that dial this one, and WELCOME or REFUSE from peers that it has
// dialled. A worker that is not a peer becomes one only as the rendezvous describes it. Until the rendezvous has
// answered, at most for a lease, that worker is a stranger and has no record. On the loop.
class Handshake {
 public:
  Handshake(StreamShared& shared, SessionLog& log, SessionEvents& events, Replies& replies, Acknowledgements& acks,
            PeerTable& peers, const Farewell& farewell, Standings& standings, Liveness& liveness)
      : shared_(shared),
        log_(log),
        events_(events),
        replies_(replies),
        acks_(acks),
        peers_(peers),
        farewell_(farewell),
        standings_(standings),
        liveness_(liveness) {}

  // `vouched`: the rendezvous's description of a stranger.
  void on_hello(const ConnectionToken& from, const wire::Hello& hello, const Peer* vouched = nullptr);
  void on_answer(PeerRecord& record, const Frames& frames);

  // The roster is known now: each held HELLO is handled once more.
  void hear_strangers_again();
  // The answer of the rendezvous; nullptr: it does not know the stranger.
  void settle_stranger(Incarnation incarnation, const Peer* vouched);
  void settle_late_strangers();

 private:
  struct Stranger {
    ConnectionToken connection;
    wire::Hello hello;
    Nanos until = kNever;
  };

  PeerRecord* admit(const ConnectionToken& from, const wire::Hello& hello, const Peer* vouched);
  void refuse(const ConnectionToken& from, const wire::Hello& hello, wire::RefuseReason reason,
              const std::string& text);
  void hold(const ConnectionToken& from, const wire::Hello& hello);
  void answer(const Stranger& stranger, const Peer* vouched);
  void on_welcome(PeerRecord& record, const wire::Welcome& welcome);
  void on_refuse(PeerRecord& record, const wire::Refuse& refusal);

  StreamShared& shared_;
  SessionLog& log_;
  SessionEvents& events_;
  Replies& replies_;
  Acknowledgements& acks_;
  PeerTable& peers_;
  const Farewell& farewell_;
  Standings& standings_;
  Liveness& liveness_;
  std::map<Incarnation, Stranger> strangers_;
};

}  // namespace distag
