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

// Bytes of one frame: owned, or borrowed from an owner that is kept alive until the transport has released them. The
// transport releases the owner on a loop, its own or the receiver's, or on the thread that destroys the transport. A
// frame is immutable; copies share.
//
// A loan is a frame that does not travel: the receiver reads it in the memory of the sender, which shows it only to
// processes of its user, and does not change it as long as the receiver has it. A broken or hostile sender can
// change it at any time: a receiver that checks a loan before use must copy it first. To write to a received loan
// ends the process.
class Frame {
 public:
  Frame() = default;
  Frame(const void* data, size_t size, std::shared_ptr<const void> owner)
      : data_(static_cast<const std::byte*>(data)), size_(size), owner_(std::move(owner)) {}
  static Frame copy_of(const void* data, size_t size);
  static Frame of(std::vector<std::byte> bytes);
  // Received bytes for which this side had no memory: the frame has a size, and no data.
  static Frame lost(size_t size) { return Frame(nullptr, size, nullptr); }
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
  bool is_lost() const { return data_ == nullptr && size_ != 0; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::shared_ptr<const void> owner_;
  bool is_loan_ = false;
};

using Frames = std::vector<Frame>;

// Names a connection at the dialled side, for answers. Never reused by one Acceptor.
using ConnectionToken = std::vector<std::byte>;

// The interfaces below have no defaults: each transport states what it lacks, so that nothing is forgotten. Promises
// that differ between socket engines are in transport/socket/engine_promises.h.

// The dialled side (a ROUTER). All on the loop. The destructor closes it.
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  // The address for diallers: with the port or path that was chosen.
  virtual const std::string& endpoint() const = 0;
  // Answers on the connection a message came from. False when it is gone or full: the answer is dropped.
  virtual bool reply(const ConnectionToken& to, Frames frames) = 0;
  // The worker that holds the key by which the connection came. Empty: the key names no worker, or the connection is
  // gone.
  virtual std::string name_of(const ConnectionToken& from) const = 0;
  // For an end in several turns: stops listening, and closes a few of the connections that take long to close. False:
  // none of them is left; the destructor closes the rest.
  virtual bool close_some() = 0;
};

// The dialling side (a DEALER): one connection, no reconnect. All on the loop. The destructor closes it without
// waiting; unsent messages are lost, unless let_last_words_go() was called before. Callbacks never run inside a call on
// the connection, nor after it is destroyed.
class Connection {
 public:
  virtual ~Connection() = default;
  // Multipart, all or nothing. False when it would block: nothing was taken, on_writable follows.
  virtual bool send(const Frames& frames) = 0;
  // For a message that is sent next: turns the frames, except the first, into loans where possible. Only the connection
  // that made a loan sends it. `ahead`: this many bytes of the same frame follow in later messages; then it makes no
  // loan unless there is room for all of them. May throw bad_alloc.
  virtual void lend(Frames& frames, size_t ahead) = 0;
  // Bytes on the connection were changed, or it is silent: the next one to that endpoint should go another way, if
  // there are two.
  virtual void distrust() = 0;
  // The state found at the other side of a connection that was never made, for a text: "no process listens there".
  // Empty: nothing is known, or the connection was made.
  virtual std::string found() const = 0;
  // The bytes received from the other side until on_connected, or fewer after that: they show whether a slow handshake
  // goes on. 0 where they are not counted: over the memory of this machine, and over ipc by libzmq.
  virtual uint64_t heard_bytes() const = 0;
};

// Messages have at least one frame. Frames behind the first may be lost, where this worker had no memory for them.
struct AcceptorEvents {
  std::function<void(const ConnectionToken& from, Frames frames)> on_message;
  // Bytes of an unfinished message have come. A transport whose messages take no time need not call it.
  std::function<void(const ConnectionToken& from)> on_part = nullptr;
  // A dialler was refused, one task for each: it lacks the keys, or its handshake is invalid, breaks off in the middle,
  // takes too long or gives way to others. `why` says which, and names its address. A dialler that hangs up without a
  // byte (a check whether a worker listens) is not reported; the end of an admitted one only if its key is no longer
  // valid.
  std::function<void(const std::string& why)> on_denied = nullptr;
  // Diallers wait, or received data is lost with its connection, as this worker lacks a resource: `why` is
  // OUT_OF_MEMORY, and names it with the cure. Repeated at each attempt. May not destroy the acceptor.
  std::function<void(const Error& why)> on_lack = nullptr;
};

struct ConnectionEvents {
  std::function<void()> on_connected;
  std::function<void(Frames frames)> on_message;
  std::function<void()> on_writable;
  // The connection is gone, or could not be made: `refused` when the endpoint answers that it has no listener. The last
  // event.
  std::function<void(bool refused)> on_dropped;
  // Right before on_dropped: the sides do not agree on keys, so dialling again is useless.
  std::function<void()> on_denied = nullptr;
  // Instead of on_dropped: the connection could not be made or read, as this worker lacks a resource, which says
  // nothing about the other side. `why` as above. If not set, on_dropped is called.
  std::function<void(const Error& why)> on_lack = nullptr;
  // The dial replaces a connection that was open. It may use descriptors that first dials leave free, so that
  // connections of strangers do not keep a member from coming back.
  bool is_redial = false;
};

// Memory for large received frames: reused, so a big tensor does not cost fresh pages each time.
class FrameMemory {
 public:
  virtual ~FrameMemory() = default;
  // Any thread. Aligned to 64 bytes; returns to the memory when the last owner goes. Throws OUT_OF_MEMORY.
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
  uint64_t loans = 0;      // sent
  uint64_t loans_out = 0;  // not yet released by the other sides
  uint64_t bytes_out = 0;
  std::map<std::string, std::string> ways;  // by endpoint: "lane", or why the last dial to it made none
};

// The engine of a transport's sockets, for reports; empty without sockets.
struct SocketReport {
  std::string engine;   // "zmq" or "zmtp"
  std::string version;  // of libzmq
};

// Frames between endpoints: ordered and whole per connection, lost only with a suffix when a connection drops. Makes
// all its sockets on the given loop. One per worker.
class Transport {
 public:
  virtual ~Transport() = default;
  // "tcp://127.0.0.1:0", "ipc:///path", "inproc://name". Throws INVALID_STATE when the address is in use,
  // INVALID_ARGUMENT when it is not one of this transport's, DENIED when other machines can reach it and there is no
  // key, OUT_OF_MEMORY when descriptors run out.
  virtual std::unique_ptr<Acceptor> listen(const std::string& address, AcceptorEvents events) = 0;
  // Never waits; a failure calls on_dropped. Throws INVALID_ARGUMENT for an address that is not one of this
  // transport's.
  virtual std::unique_ptr<Connection> dial(const std::string& endpoint, ConnectionEvents events) = 0;
  // The same to the worker of that name: if each worker has a key of its own, no other may answer. dial() expects the
  // key of the worker that serves the rendezvous. Also throws DENIED for a name without a key.
  virtual std::unique_ptr<Connection> dial_worker(const std::string& name, const std::string& endpoint,
                                                  ConnectionEvents events) = 0;
  // The likely reason why the other side of a dial() denied it, for a text: "it has another key".
  virtual std::string explain_denial() const = 0;
  // Throws what dial would throw.
  virtual void check_endpoint(const std::string& endpoint) const = 0;
  // A fresh private address to listen at: inside a 0700 directory for ipc, removed with the transport.
  virtual std::string private_address() = 0;
  // Called for an orderly end of the worker: when connections are closed from now on, queued messages are still sent
  // for up to 100 ms. No caller waits for this but that of the shutdown. On the loop.
  virtual void let_last_words_go() = 0;
  // Whether bytes arrive as they were sent, all of them and in order, because they never leave the memory of the
  // process. Elsewhere a bit may flip, which the layers above have to notice.
  virtual bool is_exact() const = 0;
  // Whether the end of a listener always calls on_dropped at once, and messages that were taken arrive as long as both
  // sides live: an idle connection then needs no check. Elsewhere a side that is cut off goes unnoticed until something
  // is sent.
  virtual bool reports_every_loss() const = 0;
  // On the loop.
  virtual LaneReport lane_report() const = 0;
  virtual SocketReport socket_report() const = 0;
  // Throws OUT_OF_MEMORY if the limit of open files is too low for sockets between that many members.
  virtual void check_descriptors(size_t members) const = 0;
};

// The limit of the frames of a message together, without the header, and so of a frame.
inline constexpr size_t kMaxMessageBytes = (1u << 20) + (64u << 10);

}  // namespace distag
