#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "session/stream_shared.h"

namespace distag {

// The connection to one peer: dialled, greeted, and dialled again after a drop. Knows nothing of numbers. There is a
// connection exactly in the states from kDialling to kOpen; what calls back later is known by its epoch, and left
// alone. The first dial waits in the line of the worker, and so do those after it that follow a stall or a handshake
// that took long; it has its turn only in kDialling. On the loop.
class OutgoingConnection {
 public:
  // The stream that goes over it. None of these may destroy the connection.
  class Owner {
   public:
    virtual ~Owner() = default;
    // It dials, or waits to dial again: the peer owes an answer.
    virtual void on_dialling() = 0;
    // It waits in the line of first dials, for which the peer is not to blame.
    virtual void on_in_line() = 0;
    // It takes messages, for the first time or again.
    virtual void on_ready() = 0;
    // WELCOME or REFUSE has come; leads to welcome() or close().
    virtual void on_answer(Frames frames) = 0;
    // It failed for good, as `why` says: DISCONNECTED or DENIED. Leads to close().
    virtual void on_dead(const Error& why) = 0;
    virtual void on_closed() = 0;
  };

  // `lack`: what keeps it from the peer, which is not to blame.
  OutgoingConnection(StreamShared& shared, const Peer& peer, Lack& lack, Owner& owner);
  ~OutgoingConnection();
  OutgoingConnection(const OutgoingConnection&) = delete;
  OutgoingConnection& operator=(const OutgoingConnection&) = delete;

  // Dials, unless it has.
  void open() { transition(Event::kNeeded); }
  void close() { transition(Event::kClosed); }
  // Ends the connection, and dials again later. `drop` counts towards the end of the peer, `stall` does not.
  void drop();
  void stall();
  // A message waits for it.
  void hurry() { place_.hurry(); }
  // Dials, if there was no memory for the timer that would. A first dial of which nothing comes gives up its turn
  // after a quarter of a lease, and one that goes on after a whole one.
  void tick(Nanos now);
  // The answer of the other side was lost for want of something here: it is dialled again.
  void stall_for(const Error& lack);
  // From now on each drop is the end. One over which nothing was ever said ends now, if `is_told`; else it is dialled,
  // outside the line.
  void end(bool is_told);
  // The peer has welcomed us.
  void welcome();

  // Never asked to dial.
  bool is_idle() const { return state_ == State::kIdle; }
  bool is_greeting() const { return state_ == State::kGreeting; }
  bool is_open() const { return state_ == State::kOpen; }
  bool is_closed() const { return state_ == State::kClosed; }
  bool is_ready() const { return is_open() && !attempt_.is_blocked; }
  // Nothing leaves by it any more, or ever did.
  bool is_over() const { return is_closed() || (ending_ && is_idle()); }

  // Expires with it.
  std::weak_ptr<char> alive() const { return alive_; }

  // False: not now; on_ready() tells when.
  bool send(const Frames& frames);
  // As Connection::lend.
  void lend(Frames& frames, size_t ahead) { connection_->lend(frames, ahead); }

  struct HandshakeSign {
    // When it was last seen that bytes came, also in those given up, later by what was waited in the line since; -1:
    // none, since it was open. What a transport hears that is connected shows nothing: its peer may not read HELLO.
    Nanos heard_at = -1;
    bool is_new = false;  // begun less than half a lease ago, as ticks are counted, after it had waited in the line
  };
  HandshakeSign look_at_handshake(Nanos now);
  // Since when nothing has come of this attempt.
  Nanos silent_since() const { return std::max(attempt_.at, attempt_.heard_at); }
  void excuse(Nanos now, Nanos time);

 private:
  enum class State {
    kIdle,
    kInLine,    // to dial for the first time
    kDialling,  // no connection yet
    kGreeting,  // HELLO is out
    kOpen,      // WELCOME has come
    kWaiting,   // to dial again
    kClosed,
  };
  enum class Event { kNeeded, kConnected, kWelcomed, kDropped, kRefused, kStalled, kShort, kRetryDue, kTurn, kClosed };

  // What is known of the connection that was dialled last; each dial begins anew.
  struct Attempt {
    Nanos at = 0;              // later by what was excused
    Nanos begun = 0;           // really
    bool has_waited = false;   // in the line, for more than a moment
    bool is_blocked = false;   // the connection takes no more for now
    bool has_greeted = false;  // HELLO was taken by the connection
    bool was_denied = false;
    uint64_t heard = 0;   // bytes of the handshake, at the last look
    Nanos heard_at = -1;  // the last look that found more
  };
  // What is known of all attempts since it was open.
  struct History {
    uint64_t heard = 0;       // bytes of handshakes, but that of the last one
    Nanos heard_at = -1;      // the last look that found more
    Nanos in_line_at = 0;     // since when it is, or was, in the line
    bool skips_line = false;  // the next dial: the last one was refused, or dropped soon
    unsigned drops = 0;
    unsigned refusals = 0;  // in a row, after a drop
  };

  void transition(Event event);
  void enter(State state);
  // `waited` in the line.
  void dial(Nanos waited = 0);
  ConnectionEvents events_of(uint64_t epoch);
  void greet();
  Frames make_hello() const;
  void drop_connection();
  void wait_to_retry();
  bool note_drop(bool refused);

  StreamShared& shared_;
  const Peer& peer_;
  DialLine::Place place_;
  Lack& lack_;
  Owner& owner_;
  State state_ = State::kIdle;

  std::unique_ptr<Connection> connection_;
  std::vector<std::unique_ptr<Connection>> dropped_;  // until the task that called back has ended
  uint64_t epoch_ = 0;                                // of the connection: callbacks of older ones are stale
  std::shared_ptr<char> alive_ = std::make_shared<char>();
  Attempt attempt_;
  History history_;
  bool was_open_ = false;  // ever: each dial is a redial from then on
  bool ending_ = false;
  Loop::TimerId retry_timer_ = 0;
};

}  // namespace distag
