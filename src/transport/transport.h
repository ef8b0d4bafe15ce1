#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/task.h"

namespace distag {

// Bytes of one frame: owned, or borrowed from an owner that is kept alive until the transport has let go of them. The
// transport lets go of it on a loop, its own or the receiver's, or on the thread that destroys the transport. A frame
// is immutable; copies share.
//
// A loan is a frame that does not travel: the receiver reads it where it lies in the memory of the sender, which shows
// it only to processes of its user and changes nothing there as long as the receiver has it. A broken or hostile sender
// can change it at any time: whoever checks a loan before use copies it first. Writing to one that has come ends the
// process.
class Frame {
 public:
  Frame() = default;
  Frame(const void* data, size_t size, std::shared_ptr<const void> owner)
      : data_(static_cast<const std::byte*>(data)), size_(size), owner_(std::move(owner)) {}
  static Frame copy_of(const void* data, size_t size);
  static Frame of(std::vector<std::byte> bytes);
  // The same bytes, as a loan.
  Frame as_loan() const {
    Frame loan = *this;
    loan.is_loan_ = true;
    return loan;
  }

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }
  bool is_loan() const { return is_loan_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const void> owner_;
  bool is_loan_ = false;
};

using Frames = std::vector<Frame>;

// Names a connection at the side that was dialled, for answers. Never reused by one Acceptor.
using ConnectionToken = std::vector<std::byte>;

// The interfaces below have no defaults: what a transport does not have it says for itself, so that none is forgotten.
// What the engines of sockets do not promise is in transport/socket/engine_promises.h.

// The side that was dialled (a ROUTER). All on the loop. Destroying it closes it.
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  // Where others dial: with the port or path that was chosen.
  virtual const std::string& endpoint() const = 0;
  // Answers on the connection a message came from. False when it is gone or full: the answer is dropped.
  virtual bool reply(const ConnectionToken& to, Frames frames) = 0;
  // The worker that holds the key by which the connection came. Empty: no key says who it is, or the connection is
  // gone.
  virtual std::string name_of(const ConnectionToken& from) const = 0;
  // For an end in turns: listens no more, and closes a few of the connections whose end takes long. False: none of
  // them is left; the rest ends with this.
  virtual bool close_some() = 0;
};

// The side that dials (a DEALER): one connection, no reconnect. All on the loop. Destroying it closes it without
// waiting; what was not sent yet is lost, unless let_last_words_go() came before. Callbacks never run inside a call on
// the connection, and not after it is gone.
class Connection {
 public:
  virtual ~Connection() = default;
  // Multipart, all or nothing. False when it would block: nothing was taken, on_writable follows.
  virtual bool send(const Frames& frames) = 0;
  // Of a message that is sent next: makes loans of the frames, except the first, that can be. A loan is sent by the
  // connection that made it only. `ahead`: this many bytes of the same frame go in later messages; then it makes no
  // loan unless there is room for all of it. May throw bad_alloc.
  virtual void lend(Frames& frames, size_t ahead) = 0;
  // Bytes were changed on it, or nothing is heard by it: the next one to that endpoint is to go another way, if there
  // are two.
  virtual void distrust() = 0;
  // What was found at the other side of a connection that was never there, for a text: "no process listens there".
  // Empty: nothing is known, or it was there.
  virtual std::string found() const = 0;
  // The bytes that have come from the other side until on_connected, or fewer once that is over: whether a handshake
  // goes on that takes long. 0 where none are counted: over the memory of this machine, and over ipc by libzmq.
  virtual uint64_t heard_bytes() const = 0;
};

// Messages have at least one frame.
struct AcceptorEvents {
  std::function<void(const ConnectionToken& from, Frames frames)> on_message;
  // Some bytes of a message have come that is not whole yet. A transport whose messages take no time need not tell.
  std::function<void(const ConnectionToken& from)> on_part = nullptr;
  // A dialler was refused, a task for each: it has not the keys, or its handshake is invalid, breaks off
  // in its midst, takes too long or gives way to others. `why` says so, and names the address that it came from. A
  // dialler that hangs up without a word (a look whether somebody listens) is not reported, and the end of an admitted
  // one only for a key that counts no more.
  std::function<void(const std::string& why)> on_denied = nullptr;
  // Diallers wait, or what came is lost with its connection, for want of something here: `why` is OUT_OF_MEMORY and
  // names it with the cure. Again at each attempt. May not destroy the acceptor.
  std::function<void(const Error& why)> on_lack = nullptr;
};

struct ConnectionEvents {
  std::function<void()> on_connected;
  std::function<void(Frames frames)> on_message;
  std::function<void()> on_writable;
  // The connection is gone, or could not be made: `refused` when the endpoint answers that it has no listener.
  // The last event.
  std::function<void(bool refused)> on_dropped;
  // Right before on_dropped: the sides do not agree on keys, so it would be in vain to dial again.
  std::function<void()> on_denied = nullptr;
  // In the place of on_dropped: the connection could not be made or read for want of something here, which says nothing
  // of the other side. `why` as above. Without it on_dropped comes.
  std::function<void(const Error& why)> on_lack = nullptr;
  // The dial takes the place of a connection that was open. It may take descriptors that a first one leaves free, so
  // that connections of strangers do not keep a member from coming back.
  bool is_redial = false;
};

// Memory for large received frames: reused, so a big tensor does not cost fresh pages each time.
class FrameMemory {
 public:
  virtual ~FrameMemory() = default;
  // Any thread. Aligned to 64 bytes; goes back when the last owner is gone. Throws OUT_OF_MEMORY.
  virtual std::shared_ptr<std::byte> allocate(size_t size) = 0;
};

// The lanes of a transport (see transport/shm), for reports.
struct LaneReport {
  bool is_on = false;
  std::string why_off;
  uint64_t open = 0;  // of both directions
  uint64_t refused = 0;
  uint64_t sleeps = 0;  // of the loop, with lanes open
  uint64_t wakes_sent = 0;
  uint64_t wakes_received = 0;
  uint64_t loans = 0;      // that were sent
  uint64_t loans_out = 0;  // that the other sides still have
  uint64_t bytes_out = 0;
  std::map<std::string, std::string> ways;  // by endpoint: "lane", or why the last dial to it went without
};

// What carries the sockets of a transport, for reports; empty without sockets.
struct SocketReport {
  std::string engine;   // "zmq" or "zmtp"
  std::string version;  // of libzmq
};

// Frames between endpoints: ordered and whole per connection, lost only with a suffix when a connection drops. Makes
// all its sockets on the loop it was given. One per worker.
class Transport {
 public:
  virtual ~Transport() = default;
  // "tcp://127.0.0.1:0", "ipc:///path", "inproc://name". Throws INVALID_STATE when the address is in use,
  // INVALID_ARGUMENT when it is not one of this transport's, DENIED when it is reachable from other machines and there
  // is no key, OUT_OF_MEMORY when descriptors run out.
  virtual std::unique_ptr<Acceptor> listen(const std::string& address, AcceptorEvents events) = 0;
  // Never waits; a failure comes as on_dropped. Throws INVALID_ARGUMENT for an address that is not one of this
  // transport's.
  virtual std::unique_ptr<Connection> dial(const std::string& endpoint, ConnectionEvents events) = 0;
  // The same to the worker of that name: where each has a key of its own, no other answers. dial() expects the key of
  // the one that serves the rendezvous. Also throws DENIED for one without a key.
  virtual std::unique_ptr<Connection> dial_worker(const std::string& name, const std::string& endpoint,
                                                  ConnectionEvents events) = 0;
  // What may be wrong where the other side of a dial() is said to have denied it, for a text: "it has another key".
  virtual std::string explain_denial() const = 0;
  // Throws what dial would for it.
  virtual void check_endpoint(const std::string& endpoint) const = 0;
  // A fresh private address to listen at: inside a 0700 directory for ipc, removed with the transport.
  virtual std::string private_address() = 0;
  // The worker ends by the rules: of what is closed from now on, words that wait in a queue of the transport still go
  // for up to 100 ms, in which no caller waits but the one of the shutdown. On the loop.
  virtual void let_last_words_go() = 0;
  // Whether bytes arrive as they were sent, all of them and in order, because they never leave the memory of the
  // process. Elsewhere a bit may flip, which the layers above have to notice.
  virtual bool is_exact() const = 0;
  // Whether the end of whoever listens comes as on_dropped, always and at once, and what was taken comes as long as
  // both sides live: a connection on which nothing is under way needs no check. Elsewhere a side that is
  // cut off goes unnoticed until something is sent.
  virtual bool reports_every_loss() const = 0;
  // On the loop.
  virtual LaneReport lane_report() const = 0;
  virtual SocketReport socket_report() const = 0;
  // Throws OUT_OF_MEMORY where the limit of open files is below what sockets between that many members take.
  virtual void check_descriptors(size_t members) const = 0;
};

// The largest frame and message in frames (without its header) that a transport carries.
inline constexpr size_t kMaxMessageBytes = (1u << 20) + (64u << 10);

}  // namespace distag
