#include "transport/zmtp/zmtp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/own_descriptors.h"
#include "transport/socket/credentials.h"
#include "transport/socket/descriptors.h"
#include "transport/socket/findings.h"
#include "transport/socket/received_bytes.h"
#include "transport/socket/sodium.h"
#include "transport/zmtp/curve_boxes.h"
#include "transport/zmtp/outbox.h"
#include "transport/zmtp/probe.h"
#include "transport/zmtp/zmtp_reader.h"

namespace distag {
namespace {

// The most bytes read or written, and messages handed out, before the loop turns to its other work.
constexpr size_t kDialledBytesPerTurn = 1u << 20;
constexpr int kDialledMessagesPerTurn = 64;

bool is_refusal(int error) { return error == ECONNREFUSED || error == ENOENT; }
bool is_hang_up(int error) { return error == 0 || error == ECONNRESET || error == EPIPE; }

int open_socket(const SocketAddress& address, bool is_redial) {
  require_descriptors(is_redial ? kRedialReserve : kDialReserve);
  const int fd = OwnDescriptors::open(
      [&address] { return socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (fd < 0) {
    const int error = errno;
    if (const std::optional<Error> lack = own_lack(error, address)) throw *lack;
    fail(Status::kUnsupported, "no socket for \"{}\" can be made: {}", address.endpoint, std::strerror(error));
  }
  const int on = 1;
  if (!address.is_ipc()) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

}  // namespace

// Dialling -> connected -> ending -> ended; each may go to closed at once, by close(): no callback follows then.
//
//   dialling   the handshake is over                    connected  on_connected
//   dialling,  the system reports the end, no such      ending     what has arrived is still handed out
//   connected  stream, the dial takes too long
//   ending     nothing is left to hand out              ended      after a probe if it was hung up on during the
//                                                                  handshake: on_denied, on_dropped
//
// A callback may destroy the connection, which ends it: so the state is checked again after each.
class ZmtpConnection::State final : public SocketWork, public std::enable_shared_from_this<ZmtpConnection::State> {
 public:
  State(std::shared_ptr<SocketTurns> turns, const SocketAddress& address, const std::optional<SocketKeys>& keys,
        ConnectionEvents events)
      : turns_(std::move(turns)),
        loop_(turns_->loop()),
        address_(address),
        events_(std::move(events)),
        keys_(keys),
        reader_(ZmtpReader::Role::kDials, keys_ ? &*keys_ : nullptr),
        fd_(open_socket(address_, events_.is_redial)) {}
  ~State() override { release(); }

  void dial(Nanos timeout);
  bool send(const Frames& frames);
  void close();
  std::string found() const;
  uint64_t heard_bytes() const;
  bool take_turn() override { return work(false); }

 private:
  enum class Phase { kDialling, kConnected, kEnding, kEnded, kClosed };
  // How and why it ends. After on_connected, only the first and the last are set.
  struct End {
    bool is_over = false;  // nothing more can be read
    bool is_denied = false;
    bool is_refused = false;
    bool is_hang_up = false;    // during the handshake
    std::string found;          // for a text
    std::optional<Error> lack;  // of this machine
  };

  bool is_open() const { return phase_ == Phase::kDialling || phase_ == Phase::kConnected; }
  bool has_ended() const { return phase_ == Phase::kEnded || phase_ == Phase::kClosed; }
  bool is_reached() const;
  const char* find_at(int error) const;
  void on_ready(bool is_writable);
  bool work(bool is_readable);
  bool receive();
  bool hand_out(int& left);
  std::optional<Frames> next_message();
  void begin_connected();
  bool flush();
  void tell_writable();
  void begin_end(int error, bool is_over);
  void finish_end();
  bool ask();
  void drop();
  void release();

  const std::shared_ptr<SocketTurns> turns_;
  FdLoop& loop_;
  const SocketAddress address_;
  const ConnectionEvents events_;
  std::optional<SocketKeys> keys_;  // the secret is dropped after the handshake
  ZmtpReader reader_;
  Outbox outbox_;
  int fd_;
  Loop::TimerId dial_timer_ = 0;
  std::unique_ptr<Probe> probe_;
  Phase phase_ = Phase::kDialling;
  bool was_connected_ = false;
  bool is_blocked_ = false;  // the system takes no more bytes now
  bool has_more_ = false;    // more messages, or bytes, than one turn hands out
  bool wants_to_write_ = false;
  End end_;
};

void ZmtpConnection::State::dial(Nanos timeout) {
  outbox_.add({Frame::of(reader_.take_answer())});
  const int error =
      connect(fd_, reinterpret_cast<const sockaddr*>(&address_.address), address_.length) == 0 ? 0 : errno;
  if (const std::optional<Error> lack = own_lack(error, address_)) throw *lack;
  turns_->add(shared_from_this());
  dial_timer_ = loop_.start_timer(loop_.now() + timeout, [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state || state->phase_ != Phase::kDialling) return;
    state->begin_end(ETIMEDOUT, true);
    state->finish_end();
  });
  if (error != 0 && error != EINPROGRESS && error != EINTR) return begin_end(error, true);  // the next turn reports it
  if (address_.is_ipc() && !keys_ && !is_of_same_user(fd_)) {
    end_.is_denied = true;
    return begin_end(EACCES, true);
  }
  loop_.watch(
      fd_,
      [weak = weak_from_this()] {
        if (const auto state = weak.lock()) state->on_ready(false);
      },
      [weak = weak_from_this()] {
        if (const auto state = weak.lock()) state->on_ready(true);
      });
}

bool ZmtpConnection::State::send(const Frames& frames) {
  assert_on_loop(loop_);
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  if (phase_ != Phase::kConnected || outbox_.is_full()) {
    wants_to_write_ = true;
    return false;
  }
  turns_->add(shared_from_this());
  outbox_.reserve(2 * frames.size() + 1);  // first: a sealed message must be sent, or the next one is refused
  outbox_.add(reader_.pack(frames));
  return true;
}

void ZmtpConnection::State::close() {
  assert_on_loop(loop_);
  // The owner's last messages are sent if that needs no waiting.
  if (phase_ == Phase::kConnected) outbox_.write_to(fd_, kDialledBytesPerTurn);
  phase_ = Phase::kClosed;
  release();
}

// Whether the system has made the connection.
bool ZmtpConnection::State::is_reached() const {
  sockaddr_storage other;
  socklen_t size = sizeof other;
  return fd_ >= 0 && getpeername(fd_, reinterpret_cast<sockaddr*>(&other), &size) == 0;
}

std::string ZmtpConnection::State::found() const {
  assert_on_loop(loop_);
  if (was_connected_ || end_.is_denied) return {};
  return end_.found.empty() ? find_at(ETIMEDOUT) : end_.found;
}

// Unread bytes count too: this side may be slow itself.
uint64_t ZmtpConnection::State::heard_bytes() const {
  assert_on_loop(loop_);
  return std::max(reader_.heard_bytes(), received_bytes(fd_));
}

// `error`: of the system.
const char* ZmtpConnection::State::find_at(int error) const {
  if (is_refusal(error)) return findings::kNobodyListens;
  if (is_hang_up(error)) return findings::kHangsUp;
  if (error != ETIMEDOUT) return findings::of_connect(error);
  if (reader_.has_greeting() || reader_.has_part()) return findings::kBrokeOff;
  return is_reached() ? findings::kIsSilent : findings::kNoAnswer;
}

void ZmtpConnection::State::on_ready(bool is_writable) {
  assert_on_loop(loop_);
  if (is_writable) is_blocked_ = false;
  if (work(!is_writable)) turns_->add(shared_from_this());
}

// Reads, writes and calls on_writable, each within its limits. True: there is more to do.
bool ZmtpConnection::State::work(bool is_readable) {
  assert_on_loop(loop_);
  if (phase_ == Phase::kEnding || is_readable || has_more_) has_more_ = receive();
  bool more = is_open() && flush();
  tell_writable();
  if (phase_ == Phase::kEnding && end_.is_over) finish_end();
  return (more || has_more_) && !has_ended();
}

// True when it stopped before everything was handed out.
bool ZmtpConnection::State::receive() {
  int messages = kDialledMessagesPerTurn;
  for (size_t bytes = 0; !has_ended() && !end_.is_over;) {
    if (!hand_out(messages)) return false;
    if (messages == 0 || bytes >= kDialledBytesPerTurn) return true;
    const std::span<std::byte> room = reader_.room();
    const ssize_t got = ::read(fd_, room.data(), room.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      end_.is_over = phase_ == Phase::kEnding;
      return false;
    }
    if (got <= 0) {
      begin_end(got < 0 ? errno : 0, true);
      return false;
    }
    reader_.add(static_cast<size_t>(got));
    bytes += static_cast<size_t>(got);
  }
  return false;
}

// Hands out whole messages, at most `left`. False: no more will follow.
bool ZmtpConnection::State::hand_out(int& left) {
  for (; left > 0; --left) {
    std::optional<Frames> frames = next_message();
    if (phase_ == Phase::kDialling && reader_.is_ready()) begin_connected();
    if (has_ended() || end_.is_over) return false;
    if (!frames) return true;
    if (was_connected_ && events_.on_message) events_.on_message(std::move(*frames));
    if (has_ended()) return false;
  }
  return true;
}

// Reads no further in an invalid stream, or without memory.
std::optional<Frames> ZmtpConnection::State::next_message() {
  const bool was_ready = reader_.is_ready();
  try {
    std::optional<Frames> frames = reader_.next();
    std::vector<std::byte> answer = reader_.take_answer();
    // A PONG to a peer that does not read may as well be left out.
    if (!answer.empty() && (!was_ready || !outbox_.is_full())) {
      turns_->add(shared_from_this());
      outbox_.add({Frame::of(std::move(answer))});
    }
    return frames;
  } catch (...) {
    const Error error = current_error();
    end_.is_denied = !was_connected_ && error.status() == Status::kDenied;
    if (!was_connected_ && error.status() == Status::kProtocol) end_.found = findings::another_program(error.message());
    begin_end(error.status() == Status::kOutOfMemory ? ENOMEM : 0, true);
    return std::nullopt;
  }
}

void ZmtpConnection::State::begin_connected() {
  phase_ = Phase::kConnected;
  was_connected_ = true;
  loop_.cancel_timer(std::exchange(dial_timer_, 0));
  if (keys_) wipe(keys_->own.secret_key);
  if (events_.on_connected) events_.on_connected();
}

// True when the system may take more.
bool ZmtpConnection::State::flush() {
  if (is_blocked_) return false;
  switch (outbox_.write_to(fd_, kDialledBytesPerTurn)) {
    case Outbox::Written::kAll:
      loop_.await_writable(fd_, false);
      return false;
    case Outbox::Written::kSome:
      return true;
    case Outbox::Written::kBlocked:
      is_blocked_ = true;
      loop_.await_writable(fd_, true);
      return false;
    case Outbox::Written::kGone:
      break;
  }
  begin_end(errno, false);
  return true;
}

void ZmtpConnection::State::tell_writable() {
  if (phase_ != Phase::kConnected || !wants_to_write_ || outbox_.is_full()) return;
  wants_to_write_ = false;
  if (events_.on_writable) events_.on_writable();
}

// `error`: of the system; `is_over`: nothing more can be read.
void ZmtpConnection::State::begin_end(int error, bool is_over) {
  end_.is_over = end_.is_over || is_over;
  if (!is_open()) return;
  phase_ = Phase::kEnding;
  end_.lack = own_lack(error, address_);
  if (was_connected_ || end_.is_denied || !end_.found.empty()) return;
  end_.is_refused = is_refusal(error);
  end_.is_hang_up = is_hang_up(error);
  end_.found = find_at(error);
}

void ZmtpConnection::State::finish_end() {
  if (phase_ != Phase::kEnding || probe_) return;
  release();
  if (end_.is_denied || !end_.is_hang_up || !ask()) drop();
}

// A listener of libzmq does not say that the keys do not fit. False: there is no memory to probe.
bool ZmtpConnection::State::ask() {
  try {
    const std::optional<CurveKey> server = keys_ ? std::optional(keys_->server) : std::nullopt;
    probe_ = std::make_unique<Probe>(loop_, address_, server, [weak = weak_from_this()](const Probe::Answer& answer) {
      const auto state = weak.lock();
      if (!state) return;
      state->end_.is_denied = answer.is_denied;
      state->end_.lack = answer.lack;
      state->drop();
    });
    return true;
  } catch (...) {
    return false;
  }
}

void ZmtpConnection::State::drop() {
  if (has_ended()) return;
  phase_ = Phase::kEnded;
  const auto probe = std::move(probe_);
  const auto self = shared_from_this();
  if (end_.is_denied && events_.on_denied) events_.on_denied();
  if (phase_ == Phase::kClosed) return;
  if (end_.lack && events_.on_lack) return events_.on_lack(*end_.lack);
  if (events_.on_dropped) events_.on_dropped(end_.is_refused);
}

void ZmtpConnection::State::release() {
  loop_.cancel_timer(std::exchange(dial_timer_, 0));
  outbox_.clear();
  if (keys_) wipe(keys_->own.secret_key);
  if (has_ended()) probe_.reset();
  if (fd_ < 0) return;
  loop_.unwatch(fd_);
  OwnDescriptors::close(std::exchange(fd_, -1));
}

ZmtpConnection::ZmtpConnection(std::shared_ptr<SocketTurns> turns, const SocketAddress& address,
                               const std::optional<SocketKeys>& keys, ConnectionEvents events, Nanos dial_timeout)
    : state_(std::make_shared<State>(std::move(turns), address, keys, std::move(events))) {
  state_->dial(dial_timeout);
}

ZmtpConnection::~ZmtpConnection() { state_->close(); }

std::string ZmtpConnection::found() const { return state_->found(); }

uint64_t ZmtpConnection::heard_bytes() const { return state_->heard_bytes(); }

bool ZmtpConnection::send(const Frames& frames) { return state_->send(frames); }

}  // namespace distag
