#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "session/stream_shared.h"

namespace distag {

// The connection to one peer: dialled, greeted, and dialled again after a drop. Numbers of messages are not its
// concern. `connection_` is set exactly in the states from kDialling to kOpen. Each callback carries the epoch of its
// connection and is ignored if that is not the current one. The first dial waits in the worker's line, and so does each
// later dial after a stall or a slow handshake; it holds its turn only in kDialling. On the loop.
class OutgoingConnection {
 public:
  // The stream that uses the connection. No method may destroy the connection.
  class Owner {
   public:
    virtual ~Owner() = default;
    // The connection dials, or waits to dial again: the peer owes an answer.
    virtual void on_dialling() = 0;
    // The connection waits in the line of first dials, for which the peer is not to blame.
    virtual void on_in_line() = 0;
    // The connection takes messages, for the first time or again.
    virtual void on_ready() = 0;
    // WELCOME or REFUSE has come. The owner calls welcome() or close() then.
    virtual void on_answer(Frames frames) = 0;
    // The connection failed for good; `why` is DISCONNECTED or DENIED. The owner calls close() then.
    virtual void on_dead(const Error& why) = 0;
    virtual void on_closed() = 0;
  };

  // `lack`: what this worker lacks to reach the peer, which is not to blame for it.
  OutgoingConnection(StreamShared& shared, const Peer& peer, Lack& lack, Owner& owner);
  ~OutgoingConnection();
  OutgoingConnection(const OutgoingConnection&) = delete;
  OutgoingConnection& operator=(const OutgoingConnection&) = delete;

  // Dials on the first call.
  void open() { transition(Event::kNeeded); }
  void close() { transition(Event::kClosed); }
  // Both end the connection and dial again later. `drop` counts towards the loss of the peer, `stall` does not.
  void drop();
  void stall();
  // A message waits for the connection.
  void hurry() { place_.hurry(); }
  // Dials if there was no memory for the retry timer. A first dial gives up its turn after a quarter of a lease if
  // nothing comes, otherwise after a lease.
  void tick(Nanos now);
  // The answer of the peer was lost because this worker lacks a resource: the connection is dialled again.
  void stall_for(const Error& lack);
  // From now on each drop closes the connection. If it was never open, it is closed now if `is_told`; otherwise it is
  // dialled outside the line.
  void end(bool is_told);
  // The peer has welcomed us.
  void welcome();

  // True if it was never asked to dial.
  bool is_idle() const { return state_ == State::kIdle; }
  bool is_greeting() const { return state_ == State::kGreeting; }
  bool is_open() const { return state_ == State::kOpen; }
  bool is_closed() const { return state_ == State::kClosed; }
  bool is_ready() const { return is_open() && !attempt_.is_blocked; }
  // True if nothing leaves by this connection any more, or ever did.
  bool is_over() const { return is_closed() || (ending_ && is_idle()); }

  // Expires when the connection is destroyed.
  std::weak_ptr<char> alive() const { return alive_; }

  // Returns false if the connection takes nothing now; on_ready() follows when it does.
  bool send(const Frames& frames);
  // See Connection::lend.
  void lend(Frames& frames, size_t ahead) { connection_->lend(frames, ahead); }

  struct HandshakeSign {
    // When bytes of a handshake were last seen to come, in any attempt since the connection was open; -1: never. Later
    // waits in the line move it later. Bytes that come after the transport has connected do not count: the peer may
    // still not read HELLO.
    Nanos heard_at = -1;
    bool is_new = false;  // the dial waited in the line and began less than about half a lease ago
  };
  HandshakeSign look_at_handshake(Nanos now);
  // The time since which nothing has come in this attempt.
  Nanos silent_since() const { return std::max(attempt_.at, attempt_.heard_at); }
  void excuse(Nanos now, Nanos time);

 private:
  enum class State {
    kIdle,
    kInLine,    // waits to dial for the first time
    kDialling,  // no connection yet
    kGreeting,  // HELLO is out
    kOpen,      // WELCOME has come
    kWaiting,   // waits to dial again
    kClosed,
  };
  enum class Event { kNeeded, kConnected, kWelcomed, kDropped, kRefused, kStalled, kShort, kRetryDue, kTurn, kClosed };

  // State of the latest dial; reset by each dial.
  struct Attempt {
    Nanos at = 0;              // when the dial began, moved later by excused time
    Nanos begun = 0;           // when the dial really began
    bool has_waited = false;   // in the line, for more than a sixteenth of a lease
    bool is_blocked = false;   // the connection takes no more for now
    bool has_greeted = false;  // HELLO was taken by the connection
    bool was_denied = false;
    uint64_t heard = 0;   // bytes of the handshake, as last seen
    Nanos heard_at = -1;  // when more bytes were last seen
  };
  // State of all attempts since the connection was open.
  struct History {
    uint64_t heard = 0;       // bytes of all handshakes before this attempt
    Nanos heard_at = -1;      // when more bytes were last seen
    Nanos in_line_at = 0;     // when it last entered the line
    bool skips_line = false;  // for the next dial: the last one was refused, or dropped soon
    unsigned drops = 0;
    unsigned refusals = 0;  // in a row, after a drop
  };

  void transition(Event event);
  void enter(State state);
  // `waited`: the time spent in the line.
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
  std::vector<std::unique_ptr<Connection>> dropped_;  // kept until the task that called back has ended
  uint64_t epoch_ = 0;                                // callbacks of connections with another epoch are stale
  std::shared_ptr<char> alive_ = std::make_shared<char>();
  Attempt attempt_;
  History history_;
  bool was_open_ = false;  // ever: each later dial is a redial
  bool ending_ = false;
  Loop::TimerId retry_timer_ = 0;
};

}  // namespace distag
