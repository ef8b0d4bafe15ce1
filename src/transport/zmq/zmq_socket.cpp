#include "transport/zmq/zmq_socket.h"

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "transport/zmq/libzmq.h"

namespace distag {
namespace {

constexpr int kHandshakeMs = 5'000;
constexpr int kNeverMs = 1'000'000'000;
// A dead machine sends nothing: its connection ends after a minute and a half.
constexpr int kKeepaliveIdle = 60;
constexpr int kKeepaliveInterval = 10;
constexpr int kKeepaliveCount = 3;
// The limits of all frames of a message together, and of their number, as in the zmtp engine.
constexpr size_t kMaxMessageTotal = 2 * kMaxMessageBytes;
constexpr size_t kMaxParts = (1u << 16) + 1;
constexpr int kPartsPerLook = 1024;
constexpr size_t kCurveOverhead = 33;  // a frame in its box is longer by this many bytes

}  // namespace

void require_zmq_curve() {
  if (libzmq.zmq_has("curve") == 1) return;
  fail(Status::kUnsupported,
       "this libzmq was built without CURVE: install one that has it, as Debian's libzmq5, or take the engine zmtp "
       "(DISTAG_SOCKET_ENGINE=zmtp)");
}

ZmqSocket::ZmqSocket(std::shared_ptr<ZmqContext> context, int type)
    : context_(std::move(context)), socket_(context_->open_socket(type)) {
  size_t size = sizeof fd_;
  if (libzmq.zmq_getsockopt(socket_, ZMQ_FD, &fd_, &size) == 0) return;
  libzmq.zmq_close(socket_);
  fail(Status::kInternal, "a ZeroMQ socket has no descriptor: {}", libzmq.zmq_strerror(libzmq.zmq_errno()));
}

ZmqSocket::~ZmqSocket() {
  parts_.clear();
  if (context_->is_here()) libzmq.zmq_close(socket_);
}

void ZmqSocket::set(int option, const void* value, size_t size) {
  assert_on_loop(context_->loop());
  if (retry_zmq([&] { return libzmq.zmq_setsockopt(socket_, option, value, size); }) == 0) return;
  fail(Status::kInternal, "ZeroMQ option {}: {}", option, libzmq.zmq_strerror(libzmq.zmq_errno()));
}

void ZmqSocket::set(int option, int value) {
  assert_on_loop(context_->loop());
  set(option, &value, sizeof value);
}

void ZmqSocket::let_linger(Nanos most) {
  assert_on_loop(context_->loop());
  set(ZMQ_LINGER, static_cast<int>(most / kMillisecond));
}

void ZmqSocket::set_connection_options(const SocketAddress& address, const std::optional<SocketKeys>& keys) {
  assert_on_loop(context_->loop());
  set(ZMQ_LINGER, 0);
  const auto max_message = static_cast<int64_t>(kMaxMessageBytes + (keys ? kCurveOverhead : 0));
  set(ZMQ_MAXMSGSIZE, &max_message, sizeof max_message);
  set(ZMQ_SNDHWM, kHighWaterMark);
  set(ZMQ_RCVHWM, kHighWaterMark);
  set(ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  set(ZMQ_IPV6, address.family() == AF_INET6 ? 1 : 0);
  // Heartbeats cut connections that are busy with a large frame.
  set(ZMQ_HEARTBEAT_IVL, 0);
  set(ZMQ_TCP_KEEPALIVE, 1);
  set(ZMQ_TCP_KEEPALIVE_IDLE, kKeepaliveIdle);
  set(ZMQ_TCP_KEEPALIVE_INTVL, kKeepaliveInterval);
  set(ZMQ_TCP_KEEPALIVE_CNT, kKeepaliveCount);
  // A DEALER lives for one connection, and keeps its pipe until it is closed. libzmq ends the process if a pipe is
  // removed between the frames of a message that is being received. That happens at the end of a connection with
  // ZMQ_IMMEDIATE, or without a reconnect interval.
  set(ZMQ_IMMEDIATE, 0);
  set(ZMQ_RECONNECT_IVL, kNeverMs);
  set(ZMQ_CONNECT_TIMEOUT, kHandshakeMs);
}

// Without memory libzmq ends the process here.
ZmqSocket::SendResult ZmqSocket::send(std::span<const std::byte> to, const Frames& frames) {
  assert_on_loop(context_->loop());
  if (is_broken_) return SendResult::kGone;
  ZmqSent sent = ZmqSent::kSome;
  try {
    sent = context_->call([&] { return send_parts(socket_, to, frames, context_->lent_frames()); });
  } catch (const std::bad_alloc&) {
    is_broken_ = true;
  }
  switch (sent) {
    case ZmqSent::kAll:
      return SendResult::kSent;
    case ZmqSent::kNothing:
      return libzmq.zmq_errno() == EAGAIN ? SendResult::kWouldBlock : SendResult::kGone;
    case ZmqSent::kNoMemory:
      return SendResult::kWouldBlock;
    case ZmqSent::kSome:
      break;
  }
  return SendResult::kGone;
}

// libzmq processes here what its threads have done for the socket: once that fails the socket cannot be used.
ZmqSocket::Received ZmqSocket::receive() {
  assert_on_loop(context_->loop());
  try {
    return is_broken_ ? Received::kNothing : context_->call([this] { return receive_parts(); });
  } catch (const std::bad_alloc&) {
    is_broken_ = true;
    return Received::kNothing;
  }
}

// The parts of a message are all there at once.
ZmqSocket::Received ZmqSocket::receive_parts() {
  if (is_whole_) {
    parts_.clear();
    bytes_ = 0;
    is_too_large_ = false;
  }
  for (int i = 0; i < kPartsPerLook; ++i) {
    ZmqPart part;
    if (!receive_part(socket_, part)) return Received::kNothing;
    is_whole_ = !part.more();
    bytes_ += part.size();
    is_too_large_ = is_too_large_ || bytes_ > kMaxMessageTotal || parts_.size() >= kMaxParts;
    if (is_too_large_) {
      // The first two parts stay, as they identify the connection.
      while (parts_.size() > 2) parts_.pop_back();
    } else {
      parts_.push_back(std::move(part));
    }
    if (is_whole_) return Received::kMessage;
  }
  return Received::kPart;
}

ZmqSocket::Readiness ZmqSocket::readiness() {
  assert_on_loop(context_->loop());
  if (is_broken_) return {};
  int events = 0;
  size_t size = sizeof events;
  try {
    const auto look = [&] { return libzmq.zmq_getsockopt(socket_, ZMQ_EVENTS, &events, &size); };
    if (context_->call([&] { return retry_zmq(look); }) != 0) events = 0;
  } catch (const std::bad_alloc&) {
    is_broken_ = true;
    return {};
  }
  return {(events & ZMQ_POLLIN) != 0, (events & ZMQ_POLLOUT) != 0};
}

}  // namespace distag
