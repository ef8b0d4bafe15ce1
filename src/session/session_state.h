#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/violation.h"
#include "session/acknowledgements.h"
#include "session/frame_pool.h"
#include "session/peer_table.h"
#include "session/self_stream.h"
#include "session/standings.h"

namespace distag {

// What leads between their streams and the layers above. On the loop.
//   session.cpp   sending                           handshake.cpp  HELLO, WELCOME, REFUSE
//   receiving.cpp messages that come                liveness.cpp   leases
struct Session::State final : PeerRecord::Events, SelfStream::Owner {
  State(Loop& loop, Transport& transport, Random& random, Log& log_of_worker, SessionConfig config,
        SessionEvents& session_events);
  ~State() override;

  void set_self(Peer peer);

  // ---- sending ----
  Ticket send(Incarnation to, wire::Body body, SendOptions options);
  void check_size_for(const PeerRecord& record, const wire::Body& body, size_t size) const;
  void open(PeerRecord& record);

  // ---- messages that come ----
  void on_message(const ConnectionToken& from, Frames frames);
  void on_part(const ConnectionToken& from);
  void on_stream_message(PeerRecord& record, const wire::Arrival& arrival, Frame header, Frames frames, size_t bytes);
  void on_unnumbered(PeerRecord* record, const ConnectionToken& from, const wire::Arrival& arrival,
                     const Frames& frames);
  void take_ack(PeerRecord& record, uint64_t number);
  std::optional<Error> take_payload(PeerRecord& record, const wire::Arrival& arrival, Frames& frames,
                                    std::vector<Task>& rest);
  void make_spare();
  void deliver(PeerRecord& record, Inbox::Decoded& decoded);
  void deliver(PeerRecord& record, wire::Message& message);
  void on_damaged(PeerRecord* record, const ConnectionToken& from, const wire::Damaged& damage);

  // ---- handshake ----
  void on_hello(const ConnectionToken& from, const wire::Hello& hello, const Peer* vouched = nullptr);
  PeerRecord* admit(const ConnectionToken& from, const wire::Hello& hello, const Peer* vouched);
  // One that says HELLO and waits for the answer of the rendezvous.
  struct Stranger {
    ConnectionToken connection;
    wire::Hello hello;
    Nanos until = kNever;
  };
  void hold(const ConnectionToken& from, const wire::Hello& hello);
  void hear_strangers_again();
  void answer(const Stranger& stranger, const Peer* vouched);
  void settle_stranger(Incarnation incarnation, const Peer* vouched);
  void settle_late_strangers();
  void refuse_hello(const ConnectionToken& from, const wire::Hello& hello, wire::RefuseReason reason,
                    const std::string& text);
  void on_refuse(PeerRecord& record, const wire::Refuse& refuse);

  // ---- PeerRecord::Events ----
  void on_answer(PeerRecord& record, Frames frames) override;
  void on_dead(PeerRecord& record, const Error& why) override {
    standings.lose_once_heard(record, why.status(), why.message(), wire::RefuseReason::kUnreachable);
  }
  void on_progress() override { farewell.on_progress(); }
  bool on_decoded(PeerRecord& record, Inbox::Decoded& decoded) override;
  // ---- leases ----
  void start_ticking();
  void tick();
  void tick(PeerRecord& record, Nanos now, bool was_paused);

  StreamShared shared;
  SessionEvents& events;
  FramePool pool;
  SessionLog log;
  Replies replies;
  Acknowledgements acks;
  PeerTable peers;
  SelfStream self;
  Farewell farewell;
  Standings standings;
  std::map<Incarnation, Stranger> strangers;
  Ticket last_ticket = 0;
  Inbox::Place spare;  // for a message that can not even be refused yet

  Loop::TimerId tick_timer = 0;
  Nanos next_tick = 0;
};

}  // namespace distag
