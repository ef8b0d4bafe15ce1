#pragma once

#include "base/violation.h"
#include "session/acknowledgements.h"
#include "session/farewell.h"
#include "session/obstacle.h"

namespace distag {

// How incarnations become members of this worker's group, and how they cease to be. Each incarnation ends once. First
// its record is retired, so that nothing of it counts any more. Then its last event follows as a task of its own. When
// both its streams are over and its events are delivered, it is buried. No event follows once the farewell has begun.
// On the loop.
class Standings {
 public:
  Standings(StreamShared& shared, SessionEvents& events, Replies& replies, Acknowledgements& acks, PeerTable& peers,
            Farewell& farewell)
      : shared_(shared), events_(events), replies_(replies), acks_(acks), peers_(peers), farewell_(farewell) {}

  // Returns false if the incarnation was lost. Older incarnations of its name count as restarted.
  bool add(const Peer& peer);
  // Adds a former stranger.
  PeerRecord& admit(const Peer& peer);
  // `word` is the reason that the peer gets on its connection.
  void lose(PeerRecord& record, Error why, wire::RefuseReason word);
  // Same as lose(), once the waiting messages are handled.
  void lose_once_heard(PeerRecord& record, Status status, std::string why, wire::RefuseReason word);
  // The peer has broken the protocol.
  void lose_for(PeerRecord& record, const Violation& violation);
  // The peer has said LEAVE.
  void on_leave(PeerRecord& record);
  // Runs `end` once the messages that wait to be decoded are handled: they are acknowledged, so they count. Only the
  // first waiting end counts.
  void end_once_heard(PeerRecord& record, Task end);
  // Must not be called while anything of a record runs.
  void bury_those_that_are_over();

 private:
  void replace_latest(NamedPeer& name);
  static void retire(PeerRecord& record, Standing standing, Error why);

  // Posts the event at `place`, in a task that holds no more than the record.
  template <typename Tell>
  void tell_soon(PeerRecord& record, const std::shared_ptr<TaskPlace>& place, Tell) noexcept {
    static_assert(std::is_empty_v<Tell>);
    shared_.loop.post_or_drop(*place, [this, session = std::weak_ptr<char>(shared_.alive), held = place, &record] {
      if (!session.expired()) Tell()(events_, record);
    });
  }

  StreamShared& shared_;
  SessionEvents& events_;
  Replies& replies_;
  Acknowledgements& acks_;
  PeerTable& peers_;
  Farewell& farewell_;
};

}  // namespace distag
