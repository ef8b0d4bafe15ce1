#include "transport/zmtp/zmtp_acceptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/each_step.h"
#include "base/error.h"
#include "base/own_descriptors.h"
#include "transport/socket/credentials.h"
#include "transport/socket/descriptors.h"
#include "transport/socket/socket_turns.h"
#include "transport/zmtp/outbox.h"
#include "transport/zmtp/zmtp_reader.h"

namespace distag {
namespace {

// The most bytes that are read from a connection, or written to it, the most messages that are handed out, and the most
// connections that are accepted, before the loop turns to its other work.
constexpr size_t kAcceptedBytesPerTurn = 1u << 20;
constexpr int kMessagesPerTurn = 64;  // of a connection
constexpr int kAcceptsPerTurn = 16;
// The most connections that have brought no message, at about 20 KiB each. A further one closes the oldest.
constexpr size_t kMostSilent = 1024;
// The pause in accepting after descriptors ran short; and the time for which a connection may be silent then.
constexpr Nanos kPause = 20 * kMillisecond;
constexpr Nanos kSilenceWhenShort = 50 * kMillisecond;

// An accepted connection. The destructor closes it.
struct Accepted {
  Accepted(int fd_, std::string from_, Nanos since_, const SocketKeys* keys)
      : fd(fd_), from(std::move(from_)), since(since_), reader(ZmtpReader::Role::kAccepts, keys) {}
  ~Accepted() { OwnDescriptors::close(fd); }
  Accepted(const Accepted&) = delete;
  Accepted& operator=(const Accepted&) = delete;

  const int fd;
  const std::string from;  // the address of the other side, which the system forgets after its end
  const Nanos since;
  ZmtpReader reader;
  Outbox outbox;
  Loop::TimerId handshake_timer = 0;
  bool has_spoken = false;
  bool is_put_off = false;  // received messages wait for the next turn
};

// Whether the other side left while it waited to be accepted, with nothing to read.
bool has_hung_up(int fd) {
  std::byte first{};
  return recv(fd, &first, sizeof first, MSG_PEEK | MSG_DONTWAIT) == 0;
}

std::string describe_other_side(int fd) {
  SocketAddress other;
  other.length = sizeof other.address;
  const bool is_known = getpeername(fd, reinterpret_cast<sockaddr*>(&other.address), &other.length) == 0;
  if (is_known && !other.is_ipc()) return tcp_endpoint(other);
  const std::optional<ucred> process = credentials_at(fd);
  return process ? fmt::format("process {} of user {}", process->pid, process->uid) : "an address that is not known";
}

}  // namespace

class ZmtpAcceptor::State final : public SocketWork, public std::enable_shared_from_this<ZmtpAcceptor::State> {
 public:
  State(std::shared_ptr<SocketTurns> turns, const SocketAddress& address, const std::optional<SocketKeys>& keys,
        AcceptorEvents events, Nanos handshake_timeout)
      : turns_(std::move(turns)),
        loop_(turns_->loop()),
        keys_(keys),
        events_(std::move(events)),
        is_for_one_user_(address.is_ipc() && !keys),
        handshake_timeout_(handshake_timeout),
        listener_(std::make_unique<Listener>(address)) {}

  const std::string& endpoint() const { return listener_->endpoint(); }
  void watch();
  bool reply(const ConnectionToken& to, const Frames& frames);
  std::string name_of(const ConnectionToken& from) const;
  void close();

 private:
  using Id = uint64_t;

  static ConnectionToken token_of(Id id);
  static Id id_of(const ConnectionToken& token);  // 0: not one of ours
  void accept_waiting();
  void pause(int error);
  void begin(int fd);
  void read(Id id);
  bool hand_out(Id id, Accepted& connection, int& left);
  void put_off(Id id, Accepted& connection) noexcept;
  bool take_turn() override;
  bool write(Accepted& connection);
  void write_rest(Id id);
  void drop(Id id, std::string_view why = {});
  void on_hung_up(Id id);
  void on_failure(Id id, Accepted& connection, const Error& error);
  void tell_of(const Accepted& connection, std::string_view why) noexcept;
  bool has(Id id) const { return connections_.contains(id); }

  const std::shared_ptr<SocketTurns> turns_;
  FdLoop& loop_;
  const std::optional<SocketKeys> keys_;
  const AcceptorEvents events_;
  const bool is_for_one_user_;
  const Nanos handshake_timeout_;
  std::unique_ptr<Listener> listener_;
  Loop::TimerId pause_timer_ = 0;
  std::vector<Id> put_off_;
  std::unordered_map<Id, std::shared_ptr<Accepted>> connections_;
  std::set<Id> silent_;  // connections without a message yet, the oldest first
  Id last_id_ = 0;
};

void ZmtpAcceptor::State::watch() {
  loop_.watch(listener_->fd(), [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->accept_waiting();
  });
}

void ZmtpAcceptor::State::accept_waiting() {
  assert_on_loop(loop_);
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    if (!has_descriptors(kAcceptReserve)) return pause(EMFILE);
    const int fd = listener_->accept();
    if (fd >= 0 && has_hung_up(fd)) {
      OwnDescriptors::close(fd);  // at once: many of them would take all descriptors, and hold up others that wait
    } else if (fd >= 0) {
      begin(fd);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return pause(errno);
    }
  }
}

// Waiting diallers are accepted once descriptors are free again.
void ZmtpAcceptor::State::pause(int error) {
  loop_.unwatch(listener_->fd());
  pause_timer_ = loop_.start_timer(loop_.now() + kPause, [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->watch();
  });
  const Nanos latest = loop_.now() - kSilenceWhenShort;
  for (auto next = silent_.begin(); next != silent_.end();) {
    const Id id = *next++;
    const Accepted& connection = *connections_.at(id);
    if (!connection.reader.is_ready() && connection.since <= latest) drop(id, "descriptors ran short in its handshake");
  }
  const std::optional<Error> lack = lack_to_accept(error);
  EachStep each;  // without memory on_lack is called another time
  each([&] {
    if (lack && events_.on_lack) events_.on_lack(*lack);
  });
}

void ZmtpAcceptor::State::begin(int fd) {
  const Id id = ++last_id_;
  std::shared_ptr<Accepted> connection;
  try {
    connection = std::make_shared<Accepted>(fd, describe_other_side(fd), loop_.now(), keys_ ? &*keys_ : nullptr);
  } catch (...) {
    OwnDescriptors::close(fd);
    return;
  }
  try {
    connection->outbox.add({Frame::of(connection->reader.take_answer())});
    if (is_for_one_user_ && !is_of_same_user(fd)) {
      const Error error(Status::kDenied,
                        "it is of another user, and over ipc:// workers without keys of their own are of one");
      return on_failure(id, *connection, error);
    }
    if (silent_.size() >= kMostSilent) drop(*silent_.begin(), "too many have come after it in its handshake");
    silent_.insert(id);
    connections_.emplace(id, connection);
    connection->handshake_timer = loop_.start_timer(loop_.now() + handshake_timeout_, [weak = weak_from_this(), id] {
      if (const auto state = weak.lock()) state->drop(id, "its handshake has not ended in time");
    });
    loop_.watch(
        fd,
        [weak = weak_from_this(), id] {
          if (const auto state = weak.lock()) state->read(id);
        },
        [weak = weak_from_this(), id] {
          if (const auto state = weak.lock()) state->write_rest(id);
        });
    if (!write(*connection)) drop(id);
  } catch (...) {
    drop(id);
  }
}

// A callback may destroy the acceptor, which drops all connections.
void ZmtpAcceptor::State::read(Id id) {
  assert_on_loop(loop_);
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second->is_put_off) return;
  const std::shared_ptr<Accepted> connection = found->second;
  int left = kMessagesPerTurn;
  for (size_t bytes = 0; bytes < kAcceptedBytesPerTurn;) {
    const std::span<std::byte> room = connection->reader.room();
    const ssize_t got = ::read(connection->fd, room.data(), room.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) return on_hung_up(id);
    connection->has_spoken = true;
    bytes += static_cast<size_t>(got);
    connection->reader.add(static_cast<size_t>(got));
    if (!hand_out(id, *connection, left)) return;
    const bool is_known = connection->handshake_timer == 0;
    if (is_known && connection->reader.has_part() && events_.on_part) events_.on_part(token_of(id));
    if (!has(id)) return;
    if (static_cast<size_t>(got) < room.size()) return;  // the loop reports more
  }
}

// Hands out received messages, at most `left`. False: the connection is gone, or the rest is put off.
bool ZmtpAcceptor::State::hand_out(Id id, Accepted& connection, int& left) {
  for (; left > 0; --left) {
    const bool was_ready = connection.reader.is_ready();
    std::optional<Frames> frames;
    try {
      frames = connection.reader.next();
      if (frames && !connection.reader.is_still_let_in()) fail(Status::kDenied, "its key may connect no more");
      std::vector<std::byte> answer = connection.reader.take_answer();
      // A PONG to a peer that does not read may as well be left out.
      const bool is_answered = !answer.empty() && (!was_ready || !connection.outbox.is_full());
      if (is_answered) connection.outbox.add({Frame::of(std::move(answer))});
      if (is_answered && !write(connection)) {
        on_hung_up(id);
        return false;
      }
    } catch (...) {
      on_failure(id, connection, current_error());
      return false;
    }
    if (!frames) return true;
    if (connection.handshake_timer != 0) {
      // The time limit covers the first message too: an honest peer sends it at once.
      loop_.cancel_timer(std::exchange(connection.handshake_timer, 0));
      silent_.erase(id);
    }
    events_.on_message(token_of(id), std::move(*frames));
    if (!has(id)) return false;
  }
  put_off(id, connection);
  return false;
}

// Puts off the rest until the end of this turn of the loop; nothing is read from the connection meanwhile. Without
// memory the connection is dropped, and its unread messages are sent again.
void ZmtpAcceptor::State::put_off(Id id, Accepted& connection) noexcept {
  try {
    turns_->add(shared_from_this());
    put_off_.push_back(id);
    connection.is_put_off = true;
  } catch (...) {
    drop(id);
  }
}

// A callback may destroy the acceptor, as in read().
bool ZmtpAcceptor::State::take_turn() {
  for (const Id id : std::exchange(put_off_, {})) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    const std::shared_ptr<Accepted> connection = found->second;
    connection->is_put_off = false;
    int left = kMessagesPerTurn;
    hand_out(id, *connection, left);
  }
  return !put_off_.empty();
}

// The caller holds the connection. An invalid message is not reported here: the layers above notice that the member is
// gone.
void ZmtpAcceptor::State::on_failure(Id id, Accepted& connection, const Error& error) {
  if (error.status() == Status::kOutOfMemory && events_.on_lack) events_.on_lack(error);
  if (error.status() != Status::kDenied) return drop(id, error.status() == Status::kProtocol ? error.message() : "");
  drop(id);
  try {
    if (!connection.reader.is_ready()) {
      connection.outbox.add({Frame::of(zmtp_denial())});
      connection.outbox.write_to(connection.fd, kAcceptedBytesPerTurn);
    }
  } catch (...) {
    // Without memory the other side is not told.
  }
  tell_of(connection, error.message());
}

// Posts a task, as the handler may destroy the acceptor. Without memory the handler is not called.
void ZmtpAcceptor::State::tell_of(const Accepted& connection, std::string_view why) noexcept {
  if (!events_.on_denied) return;
  try {
    loop_.post_or_drop(
        [weak = weak_from_this(), text = fmt::format("a connection from {} was refused: {}", connection.from, why)] {
          const auto state = weak.lock();
          if (!state) return;
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

bool ZmtpAcceptor::State::reply(const ConnectionToken& to, const Frames& frames) {
  assert_on_loop(loop_);
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  const Id id = id_of(to);
  const auto found = connections_.find(id);
  if (found == connections_.end() || !found->second->outbox.is_empty()) return false;
  Accepted& connection = *found->second;
  connection.outbox.reserve(2 * frames.size() + 1);  // reserved first, as on a dialled connection
  connection.outbox.add(connection.reader.pack(frames));
  if (write(connection)) return true;
  // Dropped later: the caller may be handling a message of this connection.
  loop_.post_or_drop([weak = weak_from_this(), id] {
    if (const auto state = weak.lock()) state->drop(id);
  });
  return false;
}

// False when the connection is gone. The rest that the socket does not take is written later.
bool ZmtpAcceptor::State::write(Accepted& connection) {
  const Outbox::Written written = connection.outbox.write_to(connection.fd, kAcceptedBytesPerTurn);
  const bool has_rest = written == Outbox::Written::kSome || written == Outbox::Written::kBlocked;
  loop_.await_writable(connection.fd, has_rest);
  return written != Outbox::Written::kGone;
}

void ZmtpAcceptor::State::write_rest(Id id) {
  assert_on_loop(loop_);
  const auto found = connections_.find(id);
  if (found != connections_.end() && !write(*found->second)) on_hung_up(id);
}

// A dialler that sends nothing only checks whether a worker listens.
void ZmtpAcceptor::State::on_hung_up(Id id) {
  const auto found = connections_.find(id);
  const bool has_spoken = found != connections_.end() && found->second->has_spoken;
  drop(id, has_spoken ? "it hung up in the midst of its handshake" : "");
}

// Reports `why` for a connection that has not ended its handshake.
void ZmtpAcceptor::State::drop(Id id, std::string_view why) {
  silent_.erase(id);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const std::shared_ptr<Accepted> connection = std::move(found->second);
  connections_.erase(found);
  loop_.cancel_timer(connection->handshake_timer);
  loop_.unwatch(connection->fd);
  if (!why.empty() && !connection->reader.is_ready()) tell_of(*connection, why);
}

void ZmtpAcceptor::State::close() {
  loop_.cancel_timer(pause_timer_);
  loop_.unwatch(listener_->fd());
  while (!connections_.empty()) drop(connections_.begin()->first);
  listener_.reset();
}

std::string ZmtpAcceptor::State::name_of(const ConnectionToken& from) const {
  assert_on_loop(loop_);
  const auto found = connections_.find(id_of(from));
  return found == connections_.end() ? std::string() : found->second->reader.client_name();
}

ZmtpAcceptor::State::Id ZmtpAcceptor::State::id_of(const ConnectionToken& token) {
  Id id = 0;
  if (token.size() == sizeof id) std::memcpy(&id, token.data(), sizeof id);
  return id;
}

ConnectionToken ZmtpAcceptor::State::token_of(Id id) {
  ConnectionToken token(sizeof id);
  std::memcpy(token.data(), &id, sizeof id);
  return token;
}

ZmtpAcceptor::ZmtpAcceptor(std::shared_ptr<SocketTurns> turns, const SocketAddress& address,
                           const std::optional<SocketKeys>& keys, AcceptorEvents events, Nanos handshake_timeout)
    : state_(std::make_shared<State>(std::move(turns), address, keys, std::move(events), handshake_timeout)) {
  state_->watch();
}

ZmtpAcceptor::~ZmtpAcceptor() { state_->close(); }

const std::string& ZmtpAcceptor::endpoint() const { return state_->endpoint(); }

bool ZmtpAcceptor::reply(const ConnectionToken& to, Frames frames) { return state_->reply(to, frames); }

std::string ZmtpAcceptor::name_of(const ConnectionToken& from) const { return state_->name_of(from); }

}  // namespace distag
