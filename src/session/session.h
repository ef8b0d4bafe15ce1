#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/random.h"
#include "transport/transport.h"
#include "wire/codec.h"
#include "wire/message.h"

namespace distag {

// Another worker as the rendezvous describes it. Keyed by incarnation everywhere.
struct Peer {
  int32_t rank = -1;
  std::string name;
  std::string endpoint;
  Incarnation incarnation = 0;
  uint64_t generation = 0;
  uint64_t max_message_bytes = 0;  // what it takes; 0: not known
};

// `worker "ps1" (rank 3)`
std::string describe_peer(const Peer& peer);

// How an incarnation stands with this worker: once it is no member, it never is again. One that was lost or has left
// has restarted when a newer one of its name is known. The first three are those of distag_member_state.
enum class Standing : int32_t { kMember = 1, kLeft = 2, kLost = 3, kRestarted = 4 };

struct SessionConfig {
  std::string job;
  Peer self;  // endpoint is filled by listen()
  Nanos lease = 5 * kSecond;
  wire::Limits limits;
  std::shared_ptr<FrameMemory> memory;  // for large payload that arrives; nullptr: a pool of the session
  size_t max_kept = size_t{1} << 21;    // messages for one peer; one that leaves more unacknowledged is lost
  Executor* decoder = nullptr;          // of messages that take long; never runs host code. nullptr: the loop
  // A peer is well, for all that is known, and no answer of it can come: this worker lacks what it takes to reach it or
  // to hear it, or the peer says that it lacks what it takes to answer. `lack` says so: OUT_OF_MEMORY, the peer, the
  // cure. `is_long`: for a lease, without an attempt that went well between; else nothing can go out for a quarter of
  // one. Comes each quarter of a lease, as long as that lasts. On the loop, as a task of its own.
  std::function<void(const Peer& peer, const Error& lack, bool is_long)> on_lack = nullptr;
};

struct SessionStats {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t bytes_in_flight = 0;
  uint64_t messages_replayed = 0;
  uint64_t messages_duplicated = 0;
  uint64_t messages_refused = 0;
  uint64_t messages_stale = 0;
  uint64_t peers_connected = 0;
  uint64_t peers_lost = 0;
};

// How its receiver took a message: see "Three verdicts" in schemas/session.fbs. One that is refused was
// handled: its sender may not ask for that.
enum class Heard { kHandled, kStale, kRefused };

// The events that the layers above see of streams. All on the loop.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  // In the order of the stream, exactly once. A throw of Violation ends the peer. OUT_OF_MEMORY leaves of the message
  // what on_unstored needs, which follows after a while; the messages behind it wait. Any other throw is a failure of
  // this worker, which the message does not outlive: it is logged, and no peer is given up.
  virtual Heard on_message(const Peer& from, wire::Message& message) = 0;
  // In its place, when there was no memory for its payload: `outline` has null for each value with some. The work that
  // the message is about fails with `why`, here and at the peer. Called again after a while when it throws
  // OUT_OF_MEMORY.
  virtual void on_unstored(const Peer& from, wire::Message& outline, const Error& why) = 0;
  // The last event about the peer. `error` names it: DISCONNECTED, or PEER_RESTARTED when a new incarnation is known.
  virtual void on_lost(const Peer& peer, const Error& error) = 0;
  // It said LEAVE, or was told to. No message follows.
  virtual void on_left(const Peer& peer) = 0;
  // Someone who is not among the peers says HELLO. True: it waits for settle_stranger(), at most for a
  // lease; false: REFUSE(unknown). When it is added, on_admitted follows.
  virtual bool on_stranger(const Peer& peer) = 0;
  virtual void on_admitted(const Peer&) {}
  // One that was lost or had left is back as a new incarnation. A message that was meant for the old one, `peer`, fails
  // with `error` from now on: PEER_RESTARTED.
  virtual void on_restarted(const Peer&, const Error&) {}
};

struct SendOptions {
  // Runs on the loop when the message is about to get its number, right before it is encoded; may change the body. What
  // it sends to the same peer goes before, unless others wait. Throws, if at all, bad_alloc, before it has changed
  // anything: it runs again once there is memory. Not run when the message is withdrawn or the peer lost before.
  UniqueFunction<void(wire::Message&)> on_number;
  // Runs once the peer has acknowledged it.
  Task on_acknowledged;
};

// Reliable ordered streams to all peers, one in each direction, made on first use; see schemas/session.fbs.
// Everything on the loop. Never blocks. Not destroyed from within on_message or the functions of SendOptions; the other
// events and `done` of leave() come as tasks of their own.
class Session {
 public:
  using Ticket = uint64_t;  // 0: none

  Session(Loop& loop, Transport& transport, Random& random, Log& log, SessionConfig config, SessionEvents& events);
  ~Session();  // closes all without a word

  // Binds; returns the endpoint. Throws what Transport::listen does.
  std::string listen(const std::string& address);
  const std::string& endpoint() const;
  const Peer& self() const;
  const wire::Limits& limits() const;
  // After the rendezvous: the rank and name that it gave.
  void set_self(Peer self);

  // Makes a peer known; no connection yet. A known incarnation is left as it is; one that was fenced is refused
  // (false). Older ones of its name have restarted.
  bool add_peer(const Peer& peer);
  // After the roster is known: those who waited for it say HELLO once more.
  void hear_strangers_again();
  // The word on a stranger: the group knows it as `vouched`, or not at all (nullptr). Whatever else it said of itself
  // is refused with DENIED.
  void settle_stranger(Incarnation incarnation, const Peer* vouched);
  // nullptr: unknown. Of one that has restarted, the latest that has its name and rank.
  const Peer* find(Incarnation incarnation) const;
  // The only word on who is gone. The error that sending to it fails with since it is no member; nullptr: it is one, or
  // unknown.
  const Error* gone(Incarnation incarnation) const;

  // For the text of a deadline, behind it: what keeps this worker and the peer from each other. Empty: nothing, or
  // there is no memory for it.
  std::string lack_text(Incarnation incarnation) const noexcept;

  // Whether our stream to it is open, for reports.
  bool is_connected(Incarnation incarnation) const;

  // Queues a message, in order; sends to oneself take the same path. A message of at most 1 MiB and 64
  // KiB is one multipart message, a larger payload goes ahead in chunks. Throws INVALID_ARGUMENT when it is too large
  // or cannot travel, DISCONNECTED when the peer is lost, NOT_FOUND when it is unknown: nothing was sent then.
  Ticket send(Incarnation to, wire::Body body, SendOptions options = {});
  // True when the message had no number yet: it never goes out.
  bool withdraw(Incarnation to, Ticket ticket);

  // Ends the stream to the peer as lost, here and (by REFUSE) there, with `why`.
  void fence(Incarnation incarnation, const Error& why);

  // Sends LEAVE to every peer with a stream, then `done` once all have acknowledged or at the deadline. Nothing may be
  // sent after it.
  void leave(Nanos deadline, Task done);

  // The end in turns, as that of hundreds of streams takes long: closes a few of them without a word, and reports
  // nothing more. After leave(), and nothing but stats() is asked of the session from then on. False: all are closed.
  bool close_some();

  // Nothing unacknowledged to anybody.
  bool is_drained() const;
  SessionStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distag
