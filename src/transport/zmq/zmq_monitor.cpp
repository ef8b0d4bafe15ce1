#include "transport/zmq/zmq_monitor.h"

#include <poll.h>

#include <cstring>

#include "base/error.h"
#include "transport/zmq/libzmq.h"

namespace distag {

std::optional<ZmqEvent> parse_event(std::span<const std::byte> part) {
  ZmqEvent event;
  if (part.size() != sizeof event.number + sizeof event.value) return std::nullopt;
  std::memcpy(&event.number, part.data(), sizeof event.number);
  std::memcpy(&event.value, part.data() + sizeof event.number, sizeof event.value);
  return event;
}

ZmqMonitor::ZmqMonitor(ZmqSocket& monitored, int events)
    : monitored_(monitored), reader_(monitored.shared_context(), ZMQ_PAIR) {
  ZmqContext& context = monitored.context();
  const std::string address = fmt::format("inproc://monitor-{}", context.next_number());
  reader_.set(ZMQ_LINGER, 0);
  reader_.set(ZMQ_RCVHWM, 0);
  const auto begin = [&] { return libzmq.zmq_socket_monitor(monitored_.handle(), address.c_str(), events); };
  if (context.call([&] { return retry_zmq(begin); }) != 0) {
    fail(Status::kOutOfMemory, "a ZeroMQ monitor cannot be made: {}", libzmq.zmq_strerror(libzmq.zmq_errno()));
  }
  const auto connect = [&] { return libzmq.zmq_connect(reader_.handle(), address.c_str()); };
  if (context.call([&] { return retry_zmq(connect); }) == 0) return;
  const std::string why = libzmq.zmq_strerror(libzmq.zmq_errno());
  libzmq.zmq_socket_monitor(monitored_.handle(), nullptr, 0);
  fail(Status::kInternal, "a ZeroMQ monitor cannot be read: {}", why);
}

ZmqMonitor::~ZmqMonitor() {
  if (monitored_.context().is_here()) libzmq.zmq_socket_monitor(monitored_.handle(), nullptr, 0);
}

// An event has two parts: its number and value, and the endpoint, which may be anything.
std::optional<ZmqEvent> ZmqMonitor::next() {
  for (;;) {
    const ZmqSocket::Received received = reader_.receive();
    if (received == ZmqSocket::Received::kNothing) return std::nullopt;
    if (received == ZmqSocket::Received::kPart || reader_.parts().empty()) continue;
    if (const auto event = parse_event(reader_.parts()[0].bytes())) return event;
  }
}

bool ZmqMonitor::wait_for(uint16_t number, Nanos timeout) {
  const Loop& loop = monitored_.context().loop();
  const Nanos deadline = loop.now() + timeout;
  for (;;) {
    while (const auto event = next()) {
      if (event->number == number) return true;
    }
    const Nanos left = deadline - loop.now();
    if (left <= 0) return false;
    pollfd readable{fd(), POLLIN, 0};
    poll(&readable, 1, static_cast<int>(left / kMillisecond) + 1);
  }
}

}  // namespace distag
