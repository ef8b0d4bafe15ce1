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
  uint64_t max_message_bytes = 0;  // largest message it accepts; 0: unknown
};

// `worker "ps1" (rank 3)`
std::string describe_peer(const Peer& peer);

// The standing of an incarnation with this worker. A former member never becomes a member again. An incarnation that
// was lost or has left counts as restarted when a newer one of its name is known. The first three are those of
// distag_member_state.
enum class Standing : int32_t { kMember = 1, kLeft = 2, kLost = 3, kRestarted = 4 };

struct SessionConfig {
  std::string job;
  Peer self;  // endpoint is filled by listen()
  Nanos lease = 5 * kSecond;
  wire::Limits limits;
  std::shared_ptr<FrameMemory> memory;  // for large payload that arrives; nullptr: a pool of the session
  size_t max_kept = size_t{1} << 21;    // messages for one peer; a peer that leaves more unacknowledged is lost
  Executor* decoder = nullptr;          // decodes messages that take long; never runs host code. nullptr: on the loop
  // A peer seems well, but no answer of it can come: this worker lacks a resource to reach or hear it, or the peer says
  // that it lacks one to answer. `lack` is OUT_OF_MEMORY and names the peer and the cure. `is_long`: it has lasted for
  // a lease without a successful attempt; otherwise nothing could go out for a quarter of a lease. Called each quarter
  // of a lease while that lasts. On the loop, as a task of its own.
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

// How the receiver took a message: see "Three verdicts" in schemas/session.fbs. A refused message was handled: its
// sender may not ask for that.
enum class Heard { kHandled, kStale, kRefused };

// The events of streams, for the layers above. All on the loop.
class SessionEvents {
 public:
  virtual ~SessionEvents() = default;
  // Called in the order of the stream, exactly once. A thrown Violation ends the peer. After OUT_OF_MEMORY the message
  // keeps what on_unstored needs, which follows later; the messages behind it wait. Any other throw is a failure of
  // this worker: the message is lost, the failure is logged, and no peer is given up.
  virtual Heard on_message(const Peer& from, wire::Message& message) = 0;
  // Called instead, when there was no memory for the payload: `outline` has null for each value with a payload. The
  // work that the message is about fails with `why`, here and at the peer. Called again later when it throws
  // OUT_OF_MEMORY.
  virtual void on_unstored(const Peer& from, wire::Message& outline, const Error& why) = 0;
  // The last event about the peer. The status of `error` is DISCONNECTED, or PEER_RESTARTED when a new incarnation is
  // known.
  virtual void on_lost(const Peer& peer, const Error& error) = 0;
  // The peer said LEAVE, or was told to leave. No message follows.
  virtual void on_left(const Peer& peer) = 0;
  // A worker that is not a peer says HELLO. True: the stranger waits for settle_stranger(), at most for a lease; false:
  // REFUSE(unknown) goes back. When the worker is added, on_admitted follows.
  virtual bool on_stranger(const Peer& peer) = 0;
  virtual void on_admitted(const Peer&) {}
  // A peer that was lost or had left is back as a new incarnation. Messages meant for the old incarnation, `peer`, fail
  // with `error` from now on: PEER_RESTARTED.
  virtual void on_restarted(const Peer&, const Error&) {}
};

struct SendOptions {
  // Runs on the loop when the message is about to get its number, right before it is encoded; may change the body.
  // Messages that it sends to the same peer go before, unless others wait. It may throw only bad_alloc, before it has
  // changed anything; it runs again once there is memory. It does not run when the message is withdrawn or the peer
  // lost before.
  UniqueFunction<void(wire::Message&)> on_number;
  // Runs once the peer has acknowledged the message.
  Task on_acknowledged;
};

// Reliable ordered streams to all peers, one in each direction, made on first use; see schemas/session.fbs. Everything
// on the loop. Never blocks. Must not be destroyed within on_message or the functions of SendOptions; the other events
// and `done` of leave() run as tasks of their own.
class Session {
 public:
  using Ticket = uint64_t;  // 0: none

  Session(Loop& loop, Transport& transport, Random& random, Log& log, SessionConfig config, SessionEvents& events);
  ~Session();  // closes all connections without LEAVE

  // Binds and returns the endpoint. Throws what Transport::listen throws.
  std::string listen(const std::string& address);
  const std::string& endpoint() const;
  const Peer& self() const;
  const wire::Limits& limits() const;
  // Called after the rendezvous, with the rank and name that it assigned.
  void set_self(Peer self);

  // Makes a peer known, without a connection. A known incarnation is left as it is; a fenced one is refused (false).
  // Older incarnations of its name count as restarted.
  bool add_peer(const Peer& peer);
  // Called when the roster is known: each HELLO that waited for it is handled once more.
  void hear_strangers_again();
  // The answer about a stranger: the group knows it as `vouched`, or not at all (nullptr). A stranger that described
  // itself differently is refused with DENIED.
  void settle_stranger(Incarnation incarnation, const Peer* vouched);
  // nullptr: unknown. For an incarnation that has restarted, returns the latest with its name and rank.
  const Peer* find(Incarnation incarnation) const;
  // The only place that decides which members are gone. Returns the error with which sends to a former member fail;
  // nullptr: the incarnation is a member, or unknown.
  const Error* gone(Incarnation incarnation) const;

  // A suffix for the text of a deadline error: what keeps this worker and the peer from reaching each other. Empty if
  // there is nothing, or no memory for the text.
  std::string lack_text(Incarnation incarnation) const noexcept;

  // Whether this worker's stream to the peer is open, for reports.
  bool is_connected(Incarnation incarnation) const;

  // Queues a message, in order; messages to oneself take the same path. A message of at most 1 MiB and 64 KiB is one
  // multipart message; a larger payload goes ahead in chunks. Throws INVALID_ARGUMENT when it is too large or cannot
  // travel, DISCONNECTED when the peer is lost, NOT_FOUND when it is unknown; nothing was sent then.
  Ticket send(Incarnation to, wire::Body body, SendOptions options = {});
  // Returns true when the message had no number yet: it never goes out.
  bool withdraw(Incarnation to, Ticket ticket);

  // Ends the stream to the peer as lost with `why`, here and, by REFUSE, at the peer.
  void fence(Incarnation incarnation, const Error& why);

  // Sends LEAVE to every peer with a stream, then `done` once all have acknowledged or at the deadline. Nothing may be
  // sent after it.
  void leave(Nanos deadline, Task done);

  // Closes a few streams at each call, as the end of hundreds of streams takes long. Peers get no LEAVE, and no event
  // is reported any more. Must follow leave(), and only stats() may be called from then on. Returns false when all are
  // closed.
  bool close_some();

  // True if nothing is unacknowledged at any peer.
  bool is_drained() const;
  SessionStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distag
