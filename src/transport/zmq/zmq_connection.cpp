#include "transport/zmq/zmq_connection.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/reserve.h"
#include "transport/zmq/probe.h"
#include "transport/zmq/zmq_monitor.h"
#include "transport/zmq/zmq_socket.h"

namespace distag {
namespace {

// Messages handed out before the loop looks at everything else again.
constexpr int kMessagesPerTurn = 64;
// The IO thread tells of every failure that it sees; this is for one that it does not.
constexpr Nanos kDialTimeout = 10 * kSecond;

}  // namespace

// Dialling -> connected -> ending -> ended; the first three may go to ended at once, by close().
//
//   dialling   the monitor tells of the handshake      connected  on_connected
//   dialling,  the monitor tells of the end, the dial  ending     what has arrived is still handed out
//   connected  takes too long, a message broke
//   ending     nothing is left to receive              ended      after a probe if it never connected: on_dropped
//
// A callback may destroy the connection, which ends it: so the state is looked at again after each.
class ZmqConnection::State final : public ZmqHandler, public std::enable_shared_from_this<ZmqConnection::State> {
 public:
  State(std::shared_ptr<ZmqContext> context, SocketAddress address, const std::optional<SocketKeys>& keys,
        ConnectionEvents events)
      : context_(std::move(context)), address_(std::move(address)), events_(std::move(events)) {
    socket_ = std::make_unique<ZmqSocket>(context_, address_.family() == AF_INET6);
    if (keys) socket_->set_keys(*keys);
  }

  void dial();
  bool send(const Frames& frames);
  void close();
  bool handle() override;

 private:
  enum class Phase { kDialling, kConnected, kEnding, kEnded };

  bool is_open() const { return phase_ == Phase::kDialling || phase_ == Phase::kConnected; }
  void begin_connected();
  bool check_writable();
  bool receive();
  void check_monitor();
  void begin_end();
  void finish_end();
  void drop(bool refused);
  void release();

  const std::shared_ptr<ZmqContext> context_;
  const SocketAddress address_;
  ConnectionEvents events_;
  std::unique_ptr<ZmqSocket> socket_;
  std::unique_ptr<ZmqMonitor> monitor_;  // after the socket, to be destroyed before it
  std::unique_ptr<Probe> probe_;
  Loop::TimerId dial_timer_ = 0;
  Phase phase_ = Phase::kDialling;
  bool was_connected_ = false;
  bool was_denied_ = false;
  bool is_closed_ = false;  // by its owner: no callback follows
  bool wants_to_write_ = false;
  bool monitor_readable_ = true;
};

void ZmqConnection::State::dial() {
  monitor_ = std::make_unique<ZmqMonitor>(*context_, socket_->handle());
  make_room_if_short();
  socket_->connect(address_.endpoint);
  FdLoop& loop = context_->loop();
  dial_timer_ = loop.start_timer(loop.now() + kDialTimeout, [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state || state->phase_ != Phase::kDialling) return;
    state->begin_end();
    state->context_->check_later(state);
  });
  context_->watch(socket_->fd(), shared_from_this());
  // Nothing but check_monitor touches the monitor, so its descriptor tells of all that comes after the first look.
  loop.watch(monitor_->fd(), [weak = weak_from_this()] {
    const auto state = weak.lock();
    if (!state) return;
    state->monitor_readable_ = true;
    if (state->handle()) state->context_->check_later(state);
  });
}

bool ZmqConnection::State::send(const Frames& frames) {
  assert_on_loop(context_->loop());
  if (frames.empty()) fail(Status::kInvalidArgument, "a message needs at least one frame");
  if (phase_ != Phase::kConnected) {
    wants_to_write_ = true;
    return false;
  }
  context_->check_later(shared_from_this());
  switch (socket_->send(frames)) {
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
  is_closed_ = true;
  phase_ = Phase::kEnded;
  release();
}

bool ZmqConnection::State::handle() {
  assert_on_loop(context_->loop());
  // Before the receive: whatever came before the end of the connection is there when the end is told.
  if (is_open() && std::exchange(monitor_readable_, false)) check_monitor();
  if (phase_ == Phase::kDialling) socket_->readiness();
  bool more = phase_ != Phase::kDialling && receive();
  // After the receive, which may have taken in that there is room; and what this takes in may be a message.
  if (phase_ == Phase::kConnected && wants_to_write_) more |= check_writable();
  if (is_open() && socket_->is_broken()) begin_end();
  if (phase_ == Phase::kEnding && !more) finish_end();
  return more;
}

void ZmqConnection::State::begin_connected() {
  phase_ = Phase::kConnected;
  was_connected_ = true;
  context_->loop().cancel_timer(std::exchange(dial_timer_, 0));
  if (events_.on_connected) events_.on_connected();
}

// True when there is something to receive.
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
  Frames frames;
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    if (phase_ == Phase::kEnded || !socket_ || !socket_->receive(frames)) return false;
    if (events_.on_message) events_.on_message(std::move(frames));
  }
  return phase_ != Phase::kEnded;
}

void ZmqConnection::State::check_monitor() {
  const ZmqMonitor::News news = monitor_->look();
  was_denied_ = was_denied_ || news.denied;
  if (news.connected) begin_connected();
  if (news.dropped && is_open()) begin_end();
}

void ZmqConnection::State::begin_end() {
  phase_ = Phase::kEnding;
  context_->loop().cancel_timer(std::exchange(dial_timer_, 0));
}

void ZmqConnection::State::finish_end() {
  if (probe_ || phase_ != Phase::kEnding) return;
  release();
  if (was_connected_ || was_denied_) {
    drop(false);
    return;
  }
  probe_ = std::make_unique<Probe>(context_->loop(), address_, [weak = weak_from_this()](ProbeResult result) {
    if (const auto state = weak.lock()) state->drop(result == ProbeResult::kRefused);
  });
}

void ZmqConnection::State::drop(bool refused) {
  if (phase_ == Phase::kEnded) return;
  phase_ = Phase::kEnded;
  const auto probe = std::move(probe_);
  const auto self = shared_from_this();
  if (was_denied_ && events_.on_denied) events_.on_denied();
  if (!is_closed_ && events_.on_dropped) events_.on_dropped(refused);
}

void ZmqConnection::State::release() {
  FdLoop& loop = context_->loop();
  loop.cancel_timer(std::exchange(dial_timer_, 0));
  if (monitor_) context_->unwatch(monitor_->fd());
  if (socket_) context_->unwatch(socket_->fd());
  monitor_.reset();
  socket_.reset();
  if (phase_ == Phase::kEnded) probe_.reset();
}

ZmqConnection::ZmqConnection(const std::shared_ptr<ZmqContext>& context, const SocketAddress& address,
                             const std::optional<SocketKeys>& keys, ConnectionEvents events)
    : state_(std::make_shared<State>(context, address, keys, std::move(events))) {
  state_->dial();
}

ZmqConnection::~ZmqConnection() { state_->close(); }

bool ZmqConnection::send(const Frames& frames) { return state_->send(frames); }

}  // namespace distag
