#include "transport/zmq/zmq_acceptor.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/own_descriptors.h"
#include "transport/key_ring.h"
#include "transport/socket/credentials.h"
#include "transport/socket/descriptors.h"
#include "transport/socket/listener.h"
#include "transport/socket/received_bytes.h"
#include "transport/socket/socket_ends.h"
#include "transport/zmq/bound_router.h"
#include "transport/zmq/handshake_watch.h"
#include "transport/zmq/libzmq.h"
#include "transport/zmq/zap.h"

namespace distag {
namespace {

constexpr int kMessagesPerTurn = 64;
constexpr int kNewcomer = 16;  // the first message of a connection takes as long as this many others
// The time that diallers wait in the backlog until descriptors are checked again.
constexpr Nanos kPause = 20 * kMillisecond;
// The time after which the end of a failed handshake would have been reported: that is the next event.
constexpr Nanos kSecondLook = 20 * kMillisecond;
// The bytes of a dialler's handshake with keys, with either engine: greeting, HELLO, INITIATE.
constexpr uint64_t kHandshakeBytes = 64 + 202 + 301;
constexpr size_t kBoxBytes = 33;  // a frame in its box is longer by this
// The most events that wait for earlier messages; beyond it they are settled at once.
constexpr size_t kMostEvents = 4096;

using Serial = HandshakeWatch::Serial;

// A connection that has brought a message.
struct Known {
  std::vector<std::byte> routing_id;
  std::string name;  // of the worker whose key it showed, at that time
  std::optional<CurveKey> key;
  uint64_t ring_version = 0;  // in which the key had that name
  bool is_barred = false;     // its messages are ignored from now on
  int fd = -1;                // a number to look at: it may belong to another connection by now
  ino_t inode = 0;            // of that connection's socket; 0: it was closed before its first message
  uint64_t bytes = 0;         // received at the last look
  uint64_t boxes = 0;         // bytes of its messages, as they came with keys
  bool has_brought = false;   // a message, since the last look
};

std::string describe_other_side(int fd) {
  SocketAddress other;
  other.length = sizeof other.address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&other.address), &other.length) != 0) return {};
  if (!other.is_ipc()) return tcp_endpoint(other);
  const std::optional<ucred> process = credentials_at(fd);
  return process ? fmt::format("process {} of user {}", process->pid, process->uid) : std::string();
}

uint64_t box_bytes(std::span<ZmqPart> frames) {
  uint64_t total = 0;
  for (const ZmqPart& frame : frames) {
    const size_t size = frame.size() + kBoxBytes;
    total += size + (size > 255 ? 9 : 2);
  }
  return total;
}

std::optional<SocketAddress> own_side_of(int fd) {
  SocketAddress own;
  own.length = sizeof own.address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own.address), &own.length) != 0) return std::nullopt;
  return own;
}

uint16_t port_of(const SocketAddress& address) {
  if (address.family() == AF_INET) return reinterpret_cast<const sockaddr_in&>(address.address).sin_port;
  return reinterpret_cast<const sockaddr_in6&>(address.address).sin6_port;
}

// The connections that have brought messages.
class KnownConnections {
 public:
  const Known* find(Serial serial) const {
    const auto found = known_.find(serial);
    return found == known_.end() ? nullptr : &found->second;
  }
  Known* find(Serial serial) {
    const auto found = known_.find(serial);
    return found == known_.end() ? nullptr : &found->second;
  }
  size_t size() const { return known_.size(); }
  // The former connection of this routing id has ended, or would still have it: no other peer gets its answers.
  Known& add(Serial serial, Known known) {
    const auto before = serials_.find(known.routing_id);
    if (before != serials_.end()) known_.erase(before->second);
    serials_[known.routing_id] = serial;
    return known_.emplace(serial, std::move(known)).first->second;
  }
  void forget(Serial serial) {
    const auto found = known_.find(serial);
    if (found == known_.end()) return;
    const auto by_id = serials_.find(found->second.routing_id);
    if (by_id != serials_.end() && by_id->second == serial) serials_.erase(by_id);
    known_.erase(found);
  }
  void clear() {
    known_.clear();
    serials_.clear();
  }
  // libzmq does not report unfinished messages: bytes that came without a message since the last look are a part of
  // one.
  std::vector<Serial> look_for_parts() {
    std::vector<Serial> with_parts;
    for (auto& [serial, known] : known_) {
      const uint64_t bytes = received_bytes(known.fd);
      if (bytes > known.bytes && !known.has_brought && !known.is_barred) with_parts.push_back(serial);
      known.bytes = bytes;
      known.has_brought = false;
    }
    return with_parts;
  }

 private:
  std::unordered_map<Serial, Known> known_;
  std::map<std::vector<std::byte>, Serial> serials_;  // by routing id: the latest connection that showed it
};

ConnectionToken token_of(Serial serial) {
  ConnectionToken token(sizeof serial);
  std::memcpy(token.data(), &serial, sizeof serial);
  return token;
}

Serial serial_of(const ConnectionToken& token) {
  Serial serial = 0;
  if (token.size() == sizeof serial) std::memcpy(&serial, token.data(), sizeof serial);
  return serial;
}

}  // namespace

class ZmqAcceptor::State final : public SocketWork, public std::enable_shared_from_this<ZmqAcceptor::State> {
 public:
  State(std::shared_ptr<ZmqContext> context, const SocketAddress& address, const std::optional<SocketKeys>& keys,
        AcceptorEvents events, Nanos look_interval)
      : context_(std::move(context)),
        loop_(context_->loop()),
        address_(address),
        keys_(keys),
        events_(std::move(events)),
        look_interval_(look_interval),
        watch_([this](int fd) { return look_at(fd); }, keys.has_value(), keys && keys->peers != nullptr) {
    if (keys_) require_zmq_curve();
    listener_ = std::make_unique<Listener>(address);
  }
  ~State() override { release(); }

  const std::string& endpoint() const { return listener_->endpoint(); }
  void await_dialler();
  bool reply(const ConnectionToken& to, const Frames& frames);
  std::string name_of(const ConnectionToken& from) const;
  void close() { release(); }
  bool take_turn() override;

 private:
  void on_dialler();
  void bind();
  void on_readable();
  void look_at_monitor();
  void settle();
  void end_broken();
  bool receive();
  void hand_out();
  Known* find(std::span<ZmqPart> parts, Serial& serial);
  bool is_accepted(int fd) const;
  HandshakeWatch::Seen look_at(int fd) const;
  Known& add(Serial serial, const ZapTicket& ticket, ZmqPart& part);
  bool is_still_let_in(Serial serial, Known& known);
  void tell_of(std::string why) noexcept;
  void look_for_parts();
  void release();

  const std::shared_ptr<ZmqContext> context_;
  FdLoop& loop_;
  const SocketAddress address_;
  const std::optional<SocketKeys> keys_;
  const AcceptorEvents events_;
  const Nanos look_interval_;
  std::unique_ptr<Listener> listener_;
  std::shared_ptr<ZapHandler> zap_;
  std::string domain_;
  std::unique_ptr<BoundRouter> router_;  // made with the first dialler
  HandshakeWatch watch_;
  KnownConnections known_;
  Loop::TimerId pause_timer_ = 0;  // until the router is bound; later until a second look
  Loop::TimerId look_timer_ = 0;
  bool has_news_ = true;  // from the monitor
  bool has_newcomer_ = false;
};

void ZmqAcceptor::State::await_dialler() {
  loop_.watch(listener_->fd(), [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->on_dialler();
  });
}

// Without descriptors diallers wait in the backlog: libzmq would end the process.
void ZmqAcceptor::State::on_dialler() {
  assert_on_loop(loop_);
  loop_.unwatch(listener_->fd());
  try {
    require_descriptors(ZmqContext::kDescriptorReserve);
    bind();
  } catch (...) {
    const Error error = current_error();
    if (error.status() == Status::kOutOfMemory && events_.on_lack) events_.on_lack(error);
    router_.reset();
    pause_timer_ = loop_.start_timer(loop_.now() + kPause, [weak = weak_from_this()] {
      const auto state = weak.lock();
      if (!state) return;
      state->pause_timer_ = 0;
      state->await_dialler();
    });
  }
}

void ZmqAcceptor::State::bind() {
  zap_ = context_->zap();  // first: without it libzmq admits all peers
  if (domain_.empty()) {
    domain_ = zap_->add({keys_, address_.is_ipc(), [weak = weak_from_this()](const std::string& why) {
                           const auto state = weak.lock();
                           if (!state) return;
                           state->watch_.add_denial();
                           state->tell_of(why);
                         }});
  }
  router_ = std::make_unique<BoundRouter>(context_, *listener_, address_, keys_, domain_);
  loop_.watch(router_->socket().fd(), [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->on_readable();
  });
  loop_.watch(router_->monitor().fd(), [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state) return;
    state->has_news_ = true;
    state->on_readable();
  });
  context_->turns()->add(shared_from_this());
}

void ZmqAcceptor::State::on_readable() {
  if (take_turn()) context_->turns()->add(shared_from_this());
}

// A callback may destroy the acceptor, which closes the router.
bool ZmqAcceptor::State::take_turn() {
  assert_on_loop(loop_);
  if (!router_) return false;
  if (std::exchange(has_news_, false)) look_at_monitor();
  const bool has_more = receive();
  if (!router_) return false;
  // libzmq reports the handshake before the first message, but on another socket: look there once more.
  if (std::exchange(has_newcomer_, false)) return has_news_ = true;
  // Ends are handled after the messages that came before them.
  if (!has_more || watch_.waiting() > kMostEvents) settle();
  return has_more;
}

void ZmqAcceptor::State::look_at_monitor() {
  const auto read = [this] {
    while (const std::optional<ZmqEvent> event = router_->monitor().next()) watch_.add(*event);
  };
  read();
  if (!watch_.look_at_addresses()) return;
  read();
  watch_.confirm_addresses();
}

void ZmqAcceptor::State::settle() {
  HandshakeWatch::Outcome outcome = watch_.settle();
  for (const Serial serial : outcome.ended) known_.forget(serial);
  for (std::string& why : outcome.refusals) tell_of(std::move(why));
  if (outcome.has_broken_box) end_broken();
  if (!outcome.is_unclear || pause_timer_ != 0) return;
  pause_timer_ = loop_.start_timer(loop_.now() + kSecondLook, [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state) return;
    state->pause_timer_ = 0;
    state->watch_.be_clear();
    state->has_news_ = true;
    state->on_readable();
  });
}

// Some connection has brought a box that does not open. Ends the connections that have unread bytes: that one, and
// others in the middle of a message, which is sent again. Over ipc the system does not count bytes: there all
// connections end, and are dialled again.
void ZmqAcceptor::State::end_broken() {
  if (!keys_) return;
  for (const HandshakeWatch::Open& open : watch_.open()) {
    const Known* const known = known_.find(open.serial);
    const uint64_t heard = kHandshakeBytes + (known == nullptr ? 0 : known->boxes);
    const uint64_t came = address_.is_ipc() ? UINT64_MAX : received_bytes(open.fd);
    if (came > heard) hang_up(open.fd, open.inode);
  }
}

// True when it stopped before everything was handed out.
bool ZmqAcceptor::State::receive() {
  for (int left = kMessagesPerTurn; left > 0;) {
    const ZmqSocket::Received received = router_->socket().receive();
    if (received != ZmqSocket::Received::kMessage) return received == ZmqSocket::Received::kPart;
    const size_t known = known_.size();
    left -= router_->socket().turn_cost();
    hand_out();
    if (!router_) return false;
    if (known_.size() > known) left -= kNewcomer;
  }
  return true;
}

void ZmqAcceptor::State::hand_out() {
  const std::span<ZmqPart> parts = router_->socket().parts();
  Serial serial = 0;
  Known* const known = find(parts, serial);
  if (known == nullptr) return;
  known->boxes += box_bytes(parts.subspan(1));
  if (!is_still_let_in(serial, *known)) return;
  if (router_->socket().is_too_large()) {
    known->is_barred = true;
    return hang_up(known->fd, known->inode);
  }
  known->has_brought = true;
  if (events_.on_message) events_.on_message(token_of(serial), frames_of(parts.subspan(1)));
}

// The connection of a message. nullptr: ZAP has not admitted it.
Known* ZmqAcceptor::State::find(std::span<ZmqPart> parts, Serial& serial) {
  if (parts.size() < 2) return nullptr;
  serial = zap_->serial_of(parts[1]);
  if (Known* const known = known_.find(serial)) return known;
  const std::optional<ZapTicket> ticket = zap_->ticket_of(parts[1]);
  return ticket ? &add(serial, *ticket, parts[0]) : nullptr;
}

Known& ZmqAcceptor::State::add(Serial serial, const ZapTicket& ticket, ZmqPart& part) {
  Known known;
  const std::span<const std::byte> id = part.bytes();
  known.routing_id.assign(id.begin(), id.end());
  known.key = ticket.key;
  known.name = ticket.name;
  known.fd = libzmq.zmq_msg_get(router_->socket().parts()[1].get(), ZMQ_SRCFD);
  if (!address_.is_ipc()) known.bytes = received_bytes(known.fd);
  if (known.fd >= 0) watch_.add_message(serial, known.fd);
  if (is_accepted(known.fd)) known.inode = inode_of_socket(known.fd);
  has_newcomer_ = true;
  if (look_timer_ == 0 && !address_.is_ipc() && events_.on_part) look_for_parts();
  return known_.add(serial, std::move(known));
}

// Whether the descriptor is of a connection to this address: libzmq may have closed it by now.
bool ZmqAcceptor::State::is_accepted(int fd) const {
  const std::optional<SocketAddress> own = own_side_of(fd);
  const std::optional<SocketAddress> listens = own_side_of(listener_->fd());
  if (!own || !listens || own->family() != listens->family()) return false;
  return own->is_ipc() ? std::strcmp(own->path(), listens->path()) == 0 : port_of(*own) == port_of(*listens);
}

HandshakeWatch::Seen ZmqAcceptor::State::look_at(int fd) const {
  if (!listener_ || !is_accepted(fd)) return {};
  return {describe_other_side(fd), inode_of_socket(fd), NotedSocket(fd)};
}

// The workers that may connect change.
bool ZmqAcceptor::State::is_still_let_in(Serial serial, Known& known) {
  if (known.is_barred) return false;
  if (!keys_ || !keys_->peers) return true;
  const uint64_t version = keys_->peers->version();  // read first: later changes are checked again
  if (version == known.ring_version) return true;
  const std::optional<std::string> name = known.key ? keys_->peers->name_of(*known.key) : std::nullopt;
  known.is_barred = name != known.name;
  if (known.is_barred) {
    hang_up(known.fd, known.inode);
    tell_of(fmt::format("connection {} of worker \"{}\" was refused: its key may connect no more", serial, known.name));
    return false;
  }
  known.ring_version = version;
  return true;
}

// Posts a task, as the handler may destroy the acceptor. Without memory the handler is not called.
void ZmqAcceptor::State::tell_of(std::string why) noexcept {
  if (!events_.on_denied) return;
  try {
    loop_.post_or_drop([weak = weak_from_this(), text = std::move(why)] {
      const auto state = weak.lock();
      if (!state || !state->listener_) return;
      try {
        state->events_.on_denied(text);
      } catch (...) {
        // Without memory, as above.
      }
    });
  } catch (...) {
    // Without memory, as above.
  }
}

void ZmqAcceptor::State::look_for_parts() {
  const std::vector<Serial> with_parts = known_.look_for_parts();
  look_timer_ = loop_.start_timer(loop_.now() + look_interval_, [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->look_for_parts();
  });
  for (const Serial serial : with_parts) {
    if (!router_) return;
    events_.on_part(token_of(serial));
  }
}

bool ZmqAcceptor::State::reply(const ConnectionToken& to, const Frames& frames) {
  assert_on_loop(loop_);
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  const Serial serial = serial_of(to);
  const Known* const known = known_.find(serial);
  if (!router_ || known == nullptr) return false;  // a barred peer may still be told so
  context_->turns()->add(shared_from_this());
  switch (router_->socket().send(known->routing_id, frames)) {
    case ZmqSocket::SendResult::kSent:
      return true;
    case ZmqSocket::SendResult::kWouldBlock:
      return false;
    case ZmqSocket::SendResult::kGone:
      break;
  }
  return false;
}

std::string ZmqAcceptor::State::name_of(const ConnectionToken& from) const {
  assert_on_loop(loop_);
  const Known* const known = known_.find(serial_of(from));
  return known == nullptr ? std::string() : known->name;
}

void ZmqAcceptor::State::release() {
  if (!listener_) return;
  loop_.cancel_timer(std::exchange(pause_timer_, 0));
  loop_.cancel_timer(std::exchange(look_timer_, 0));
  loop_.unwatch(listener_->fd());
  listener_.reset();
  if (router_) {
    loop_.unwatch(router_->socket().fd());
    loop_.unwatch(router_->monitor().fd());
  }
  if (router_ && context_->is_here()) router_->unbind();
  router_.reset();
  if (zap_) zap_->remove(domain_);
  known_.clear();
}

ZmqAcceptor::ZmqAcceptor(std::shared_ptr<ZmqContext> context, const SocketAddress& address,
                         const std::optional<SocketKeys>& keys, AcceptorEvents events, Nanos look_interval)
    : state_(std::make_shared<State>(std::move(context), address, keys, std::move(events), look_interval)) {
  state_->await_dialler();
}

ZmqAcceptor::~ZmqAcceptor() { state_->close(); }

const std::string& ZmqAcceptor::endpoint() const { return state_->endpoint(); }

bool ZmqAcceptor::reply(const ConnectionToken& to, Frames frames) { return state_->reply(to, frames); }

std::string ZmqAcceptor::name_of(const ConnectionToken& from) const { return state_->name_of(from); }

}  // namespace distag
