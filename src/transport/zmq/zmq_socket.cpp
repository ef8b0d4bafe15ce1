#include "transport/zmq/zmq_socket.h"

#include <zmq.h>

#include <utility>

#include "base/error.h"
#include "base/reserve.h"
#include "transport/zmq/curve_server.h"
#include "transport/zmq/probe.h"
#include "transport/zmq/zmq_message.h"

namespace distag {
namespace {

// Messages queued in either direction of a connection before it would block.
constexpr int kHighWaterMark = 512;
constexpr int kHandshakeMs = 5'000;
constexpr int kNeverMs = 1'000'000'000;

void set_options(void* socket, bool ipv6) {
  set_zmq_option(socket, ZMQ_LINGER, 0);
  const int64_t max_message = static_cast<int64_t>(kMaxMessageBytes + CurveServer::kOverhead);
  if (zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &max_message, sizeof max_message) != 0) {
    fail(Status::kInternal, "ZeroMQ option MAXMSGSIZE: {}", zmq_strerror(zmq_errno()));
  }
  set_zmq_option(socket, ZMQ_SNDHWM, kHighWaterMark);
  set_zmq_option(socket, ZMQ_RCVHWM, kHighWaterMark);
  set_zmq_option(socket, ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  set_zmq_option(socket, ZMQ_IPV6, ipv6 ? 1 : 0);
  // Heartbeats cut connections that are busy with a large frame.
  set_zmq_option(socket, ZMQ_HEARTBEAT_IVL, 0);
  // A socket lives for one connection, and keeps its pipe until it is closed. libzmq ends the process where a
  // pipe goes among the frames of a message that is being received, as it does at the end of a connection with
  // ZMQ_IMMEDIATE, and without an interval to reconnect.
  set_zmq_option(socket, ZMQ_IMMEDIATE, 0);
  set_zmq_option(socket, ZMQ_RECONNECT_IVL, kNeverMs);
  set_zmq_option(socket, ZMQ_CONNECT_TIMEOUT, kHandshakeMs);
}

int get_option(void* socket, int option) {
  int value = 0;
  size_t size = sizeof value;
  // Looking at what is there is interrupted by signals.
  if (retry_zmq([&] { return zmq_getsockopt(socket, option, &value, &size); }) != 0) {
    fail(Status::kInternal, "ZeroMQ option {}: {}", option, zmq_strerror(zmq_errno()));
  }
  return value;
}

}  // namespace

void set_zmq_option(void* socket, int option, int value) {
  if (zmq_setsockopt(socket, option, &value, sizeof value) != 0) {
    fail(Status::kInternal, "ZeroMQ option {} = {}: {}", option, value, zmq_strerror(zmq_errno()));
  }
}

void close_zmq_socket(void* socket) {
  // Fails only for what is no socket.
  if (socket != nullptr) zmq_close(socket);
}

ZmqSocket::ZmqSocket(std::shared_ptr<ZmqContext> context, bool ipv6) : context_(std::move(context)) {
  require_descriptors(kDialReserve);
  socket_ = context_->open_socket(ZMQ_DEALER);
  if (socket_ == nullptr) {
    fail(Status::kOutOfMemory, "a ZeroMQ socket cannot be made: {}; raise the limit of open files (ulimit -n)",
         zmq_strerror(zmq_errno()));
  }
  try {
    set_options(socket_, ipv6);
    fd_ = get_option(socket_, ZMQ_FD);
  } catch (...) {
    close_zmq_socket(socket_);
    throw;
  }
}

ZmqSocket::~ZmqSocket() { close_zmq_socket(socket_); }

void ZmqSocket::set_keys(const SocketKeys& keys) {
  assert_on_loop(context_->loop());
  auto set = [this](int option, const CurveKey& value) {
    return zmq_setsockopt(socket_, option, value.data(), value.size()) == 0;
  };
  if (zmq_has("curve") == 1 && set(ZMQ_CURVE_SERVERKEY, keys.server) && set(ZMQ_CURVE_PUBLICKEY, keys.own.public_key) &&
      set(ZMQ_CURVE_SECRETKEY, keys.own.secret_key)) {
    return;
  }
  fail(Status::kUnsupported, "this libzmq was built without CURVE: install one that has it, as Debian's libzmq5");
}

void ZmqSocket::connect(const std::string& endpoint) {
  assert_on_loop(context_->loop());
  auto connect = [&] { return zmq_connect(socket_, endpoint.c_str()); };
  if (context_->call([&] { return retry_zmq(connect); }) != 0) {
    fail(Status::kInvalidArgument, "\"{}\" cannot be dialled: {}", endpoint, zmq_strerror(zmq_errno()));
  }
}

// libzmq ends the process when it gets no memory.
ZmqSocket::SendResult ZmqSocket::send(const Frames& frames) {
  assert_on_loop(context_->loop());
  make_room_if_short();
  ZmqSent sent = ZmqSent::kSome;
  try {
    sent = context_->call([&] { return send_parts(socket_, frames, context_->lent_frames()); });
  } catch (...) {
    is_broken_ = true;
  }
  switch (sent) {
    case ZmqSent::kAll:
      return SendResult::kSent;
    case ZmqSent::kNothing:
      return zmq_errno() == EAGAIN ? SendResult::kWouldBlock : SendResult::kGone;
    case ZmqSent::kNoMemory:
      return SendResult::kWouldBlock;
    case ZmqSent::kSome:
      break;
  }
  return SendResult::kGone;
}

// libzmq takes in here what its threads have done for the socket: once that has failed the socket is of no use.
bool ZmqSocket::receive(Frames& frames) {
  assert_on_loop(context_->loop());
  try {
    return !is_broken_ && context_->call([&] { return receive_parts(socket_, frames); });
  } catch (...) {
    is_broken_ = true;
    return false;
  }
}

ZmqSocket::Readiness ZmqSocket::readiness() {
  assert_on_loop(context_->loop());
  try {
    const int events = is_broken_ ? 0 : context_->call([this] { return get_option(socket_, ZMQ_EVENTS); });
    return {(events & ZMQ_POLLIN) != 0, (events & ZMQ_POLLOUT) != 0};
  } catch (...) {
    is_broken_ = true;
    return {};
  }
}

}  // namespace distag
