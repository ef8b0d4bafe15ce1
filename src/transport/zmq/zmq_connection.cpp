#include "transport/zmq/zmq_connection.h"

#include <utility>

#include "base/error.h"
#include "transport/socket/findings.h"
#include "transport/zmq/dial_watch.h"
#include "transport/zmq/libzmq.h"
#include "transport/zmq/zmq_socket.h"
#include "transport/zmtp/probe.h"

namespace distag {
namespace {

// The most messages handed out before the loop turns to its other work.
constexpr int kMessagesPerTurn = 64;
// The IO thread reports every failure that it sees; this limit is for the others.
constexpr Nanos kDialTimeout = 10 * kSecond;

}  // namespace

// Dialling -> connected -> ending -> ended; the first three may go to ended at once, by close().
//
//   dialling   the monitor reports the handshake       connected  on_connected
//   dialling,  the monitor reports the end, the dial   ending     what has arrived is still handed out
//   connected  takes too long, a message broke
//   ending     nothing is left to receive              ended      after a probe if it never connected: on_dropped
//
// A callback may destroy the connection, which ends it: so the state is checked again after each.
class ZmqConnection::State final : public SocketWork, public std::enable_shared_from_this<ZmqConnection::State> {
 public:
  State(std::shared_ptr<ZmqContext> context, const SocketAddress& address, const std::optional<SocketKeys>& keys,
        ConnectionEvents events)
      : context_(std::move(context)),
        loop_(context_->loop()),
        address_(address),
        events_(std::move(events)),
        keys_(keys) {
    make_socket();
  }
  ~State() override { release(); }

  void dial();
  bool send(const Frames& frames);
  void close();
  std::string found() const;
  uint64_t heard_bytes() const;
  bool take_turn() override;

 private:
  enum class Phase { kDialling, kConnected, kEnding, kEnded };

  bool is_open() const { return phase_ == Phase::kDialling || phase_ == Phase::kConnected; }
  void make_socket();
  void on_readable();
  void look_at_monitor();
  void begin_connected();
  bool check_writable();
  bool receive();
  void begin_end();
  void finish_end();
  void on_answer(const Probe::Answer& answer);
  void drop(bool is_refused, const Error* lack = nullptr);
  void release();

  const std::shared_ptr<ZmqContext> context_;
  FdLoop& loop_;
  const SocketAddress address_;
  const ConnectionEvents events_;
  const std::optional<SocketKeys> keys_;
  std::unique_ptr<ZmqSocket> socket_;
  std::unique_ptr<DialWatch> watch_;  // after the socket, to be destroyed before it
  std::unique_ptr<Probe> probe_;
  Loop::TimerId dial_timer_ = 0;
  Phase phase_ = Phase::kDialling;
  std::string found_;  // by a probe
  bool was_connected_ = false;
  bool was_denied_ = false;
  bool is_closed_ = false;  // by its owner: no callback follows
  bool wants_to_write_ = false;
};

void ZmqConnection::State::make_socket() {
  socket_ = std::make_unique<ZmqSocket>(context_, ZMQ_DEALER);
  socket_->set_connection_options(address_, keys_);
  if (!keys_) return;
  socket_->set(ZMQ_CURVE_SERVERKEY, keys_->server.data(), keys_->server.size());
  socket_->set(ZMQ_CURVE_PUBLICKEY, keys_->own.public_key.data(), keys_->own.public_key.size());
  socket_->set(ZMQ_CURVE_SECRETKEY, keys_->own.secret_key.data(), keys_->own.secret_key.size());
}

void ZmqConnection::State::dial() {
  watch_ = std::make_unique<DialWatch>(*socket_, address_.is_ipc() && !keys_);
  const auto connect = [this] { return libzmq.zmq_connect(socket_->handle(), address_.endpoint.c_str()); };
  if (context_->call([&] { return retry_zmq(connect); }) != 0) {
    fail(Status::kInvalidArgument, "\"{}\" cannot be dialled: {}", address_.endpoint,
         libzmq.zmq_strerror(libzmq.zmq_errno()));
  }
  dial_timer_ = loop_.start_timer(loop_.now() + kDialTimeout, [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state || state->phase_ != Phase::kDialling) return;
    state->begin_end();
    state->context_->turns()->add(state);
  });
  const auto on_readable = [weak = weak_from_this()] {
    if (const auto state = weak.lock()) state->on_readable();
  };
  loop_.watch(socket_->fd(), on_readable);
  loop_.watch(watch_->fd(), [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state || !state->watch_) return;
    state->watch_->note_news();
    state->on_readable();
  });
  context_->turns()->add(shared_from_this());
}

void ZmqConnection::State::on_readable() {
  if (take_turn()) context_->turns()->add(shared_from_this());
}

bool ZmqConnection::State::send(const Frames& frames) {
  assert_on_loop(loop_);
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  if (phase_ != Phase::kConnected) {
    wants_to_write_ = true;
    return false;
  }
  context_->turns()->add(shared_from_this());
  switch (socket_->send({}, frames)) {
    case ZmqSocket::SendResult::kSent:
      return true;
    case ZmqSocket::SendResult::kWouldBlock:
      wants_to_write_ = true;
      return false;
    case ZmqSocket::SendResult::kGone:
      break;
  }
  begin_end();
  return false;
}

void ZmqConnection::State::close() {
  assert_on_loop(loop_);
  is_closed_ = true;
  if (phase_ == Phase::kConnected && context_->is_here()) socket_->let_linger(context_->last_words());
  phase_ = Phase::kEnded;
  release();
}

bool ZmqConnection::State::take_turn() {
  assert_on_loop(loop_);
  // Before the receive: all messages before the end of the connection are there when the end is reported.
  if (is_open()) look_at_monitor();
  if (phase_ == Phase::kDialling) socket_->readiness();
  bool more = phase_ != Phase::kDialling && receive();
  // After the receive, which may have noticed new room; and this call may notice a message.
  if (phase_ == Phase::kConnected && wants_to_write_) more |= check_writable();
  if (is_open() && socket_->is_broken()) begin_end();
  if (phase_ == Phase::kEnding && !more) finish_end();
  return more && phase_ != Phase::kEnded;
}

void ZmqConnection::State::look_at_monitor() {
  watch_->look();
  const bool is_over = watch_->is_over();
  was_denied_ = was_denied_ || watch_->is_denied();
  if (watch_->is_shaken() && phase_ == Phase::kDialling) begin_connected();
  if (is_over && is_open()) begin_end();
}

void ZmqConnection::State::begin_connected() {
  phase_ = Phase::kConnected;
  was_connected_ = true;
  loop_.cancel_timer(std::exchange(dial_timer_, 0));
  if (events_.on_connected) events_.on_connected();
}

// True when there is a message to receive.
bool ZmqConnection::State::check_writable() {
  const ZmqSocket::Readiness readiness = socket_->readiness();
  if (readiness.writable) {
    wants_to_write_ = false;
    if (events_.on_writable) events_.on_writable();
  }
  return readiness.readable && phase_ == Phase::kConnected;
}

// True when it stopped before everything was handed out.
bool ZmqConnection::State::receive() {
  for (int left = kMessagesPerTurn; left > 0;) {
    if (phase_ == Phase::kEnded || !socket_) return false;
    const ZmqSocket::Received received = socket_->receive();
    if (received != ZmqSocket::Received::kMessage) return received == ZmqSocket::Received::kPart;
    if (socket_->is_too_large()) {
      if (is_open()) begin_end();
      return false;
    }
    left -= socket_->turn_cost();
    // Nothing is handed out before on_connected: a peer that was refused may have sent something.
    if (was_connected_ && events_.on_message) events_.on_message(frames_of(socket_->parts()));
  }
  return phase_ != Phase::kEnded;
}

void ZmqConnection::State::begin_end() {
  phase_ = Phase::kEnding;
  loop_.cancel_timer(std::exchange(dial_timer_, 0));
}

void ZmqConnection::State::finish_end() {
  if (probe_ || phase_ != Phase::kEnding) return;
  release();
  if (was_connected_ || was_denied_) return drop(false);
  // libzmq does not report why a dial failed.
  try {
    const std::optional<CurveKey> server = keys_ ? std::optional(keys_->server) : std::nullopt;
    probe_ = std::make_unique<Probe>(loop_, address_, server, [weak = weak_from_this()](const Probe::Answer& answer) {
      if (const auto state = weak.lock()) state->on_answer(answer);
    });
  } catch (...) {
    const Error error = current_error();
    drop(false, error.status() == Status::kOutOfMemory ? &error : nullptr);
  }
}

void ZmqConnection::State::on_answer(const Probe::Answer& answer) {
  found_ = answer.found;
  was_denied_ = answer.is_denied;
  drop(answer.is_refused, answer.lack ? &*answer.lack : nullptr);
}

std::string ZmqConnection::State::found() const {
  assert_on_loop(loop_);
  if (was_connected_ || was_denied_ || !found_.empty()) return found_;
  if (phase_ == Phase::kDialling && !watch_->is_connected()) return findings::kNoAnswer;
  const bool has_heard = phase_ != Phase::kDialling || watch_->has_heard();
  return has_heard ? findings::kBrokeOff : findings::kIsSilent;
}

uint64_t ZmqConnection::State::heard_bytes() const {
  assert_on_loop(loop_);
  return is_open() ? watch_->heard_bytes() : 0;
}

void ZmqConnection::State::drop(bool is_refused, const Error* lack) {
  if (phase_ == Phase::kEnded) return;
  phase_ = Phase::kEnded;
  const auto probe = std::move(probe_);
  const auto self = shared_from_this();
  if (was_denied_ && events_.on_denied) events_.on_denied();
  if (is_closed_) return;
  if (lack != nullptr && events_.on_lack) return events_.on_lack(*lack);
  if (events_.on_dropped) events_.on_dropped(is_refused);
}

void ZmqConnection::State::release() {
  loop_.cancel_timer(std::exchange(dial_timer_, 0));
  if (watch_) loop_.unwatch(watch_->fd());
  if (socket_) loop_.unwatch(socket_->fd());
  watch_.reset();
  socket_.reset();
  if (phase_ == Phase::kEnded) probe_.reset();
}

ZmqConnection::ZmqConnection(const std::shared_ptr<ZmqContext>& context, const SocketAddress& address,
                             const std::optional<SocketKeys>& keys, ConnectionEvents events)
    : state_(std::make_shared<State>(context, address, keys, std::move(events))) {
  state_->dial();
}

ZmqConnection::~ZmqConnection() { state_->close(); }

std::string ZmqConnection::found() const { return state_->found(); }

uint64_t ZmqConnection::heard_bytes() const { return state_->heard_bytes(); }

bool ZmqConnection::send(const Frames& frames) { return state_->send(frames); }

}  // namespace distag
