#include "transport/zmq/zmq_monitor.h"

#include <zmq.h>

#include <cstring>
#include <string>

#include "base/error.h"
#include "transport/zmq/zmq_socket.h"

namespace distag {
namespace {

constexpr int kDropEvents = ZMQ_EVENT_CLOSED | ZMQ_EVENT_CLOSE_FAILED | ZMQ_EVENT_DISCONNECTED |
                            ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                            ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_CONNECT_RETRIED;

// The other side said so, or speaks another mechanism, or its boxes are of another key.
bool is_denial(uint16_t event, uint32_t value) {
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return true;
  return event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
         (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH || value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC);
}

}  // namespace

ZmqMonitor::ZmqMonitor(ZmqContext& context, void* socket) : monitored_(socket) {
  const std::string address = fmt::format("inproc://monitor-{}", context.next_number());
  auto begin = [&] { return zmq_socket_monitor(socket, address.c_str(), kDropEvents | ZMQ_EVENT_HANDSHAKE_SUCCEEDED); };
  if (context.call([&] { return retry_zmq(begin); }) != 0) {
    fail(Status::kOutOfMemory, "a ZeroMQ monitor cannot be made: {}", zmq_strerror(zmq_errno()));
  }
  try {
    pair_ = context.open_socket(ZMQ_PAIR);
    if (pair_ == nullptr) fail(Status::kOutOfMemory, "a ZeroMQ socket cannot be made: {}", zmq_strerror(zmq_errno()));
    set_zmq_option(pair_, ZMQ_LINGER, 0);
    set_zmq_option(pair_, ZMQ_RCVHWM, 0);
    size_t size = sizeof fd_;
    auto connect = [&] { return zmq_connect(pair_, address.c_str()); };
    if (context.call([&] { return retry_zmq(connect); }) != 0 || zmq_getsockopt(pair_, ZMQ_FD, &fd_, &size) != 0) {
      fail(Status::kInternal, "a ZeroMQ monitor cannot be read: {}", zmq_strerror(zmq_errno()));
    }
  } catch (...) {
    zmq_socket_monitor(monitored_, nullptr, 0);
    close_zmq_socket(pair_);
    throw;
  }
}

ZmqMonitor::~ZmqMonitor() {
  zmq_socket_monitor(monitored_, nullptr, 0);
  close_zmq_socket(pair_);
}

// One event is two frames: its number (and a value), and the endpoint.
ZmqMonitor::News ZmqMonitor::look() {
  News news;
  while (!news.dropped) {
    unsigned char head[6] = {};
    int received = -1;
    do {
      received = zmq_recv(pair_, head, sizeof head, ZMQ_DONTWAIT);
    } while (received < 0 && zmq_errno() == EINTR);
    if (received < 0) break;
    uint16_t number = 0;
    uint32_t value = 0;
    std::memcpy(&number, head, sizeof number);
    std::memcpy(&value, head + sizeof number, sizeof value);
    zmq_recv(pair_, nullptr, 0, ZMQ_DONTWAIT);
    news.connected = news.connected || number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
    news.denied = news.denied || is_denial(number, value);
    news.dropped = (number & kDropEvents) != 0;
  }
  return news;
}

}  // namespace distag
