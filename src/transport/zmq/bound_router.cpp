#include "transport/zmq/bound_router.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "transport/zmq/libzmq.h"

namespace distag {
namespace {

// The IO thread closes a listening socket at once; only a very busy one needs this long.
constexpr Nanos kCloseTimeout = kSecond;

constexpr int kWatched = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED |
                         ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                         ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;

}  // namespace

BoundRouter::BoundRouter(const std::shared_ptr<ZmqContext>& context, const Listener& listener,
                         const SocketAddress& address, const std::optional<SocketKeys>& keys, const std::string& domain)
    : socket_(context, ZMQ_ROUTER), monitor_(socket_, kWatched), is_ipc_(address.is_ipc()) {
  socket_.set_connection_options(address, keys);
  socket_.set(ZMQ_ROUTER_MANDATORY, 1);
  socket_.set(ZMQ_ROUTER_HANDOVER, 0);
  socket_.set(ZMQ_ZAP_DOMAIN, domain.data(), domain.size());
  if (keys) {
    socket_.set(ZMQ_CURVE_SERVER, 1);
    socket_.set(ZMQ_CURVE_SECRETKEY, keys->own.secret_key.data(), keys->own.secret_key.size());
  }
  const int duplicate = fcntl(listener.fd(), F_DUPFD_CLOEXEC, 0);
  if (duplicate < 0) fail(Status::kOutOfMemory, "a descriptor cannot be duplicated: {}", std::strerror(errno));
  duplicate_ = NotedSocket(duplicate);
  socket_.set(ZMQ_USE_FD, duplicate);
  const auto bind_it = [&] { return libzmq.zmq_bind(socket_.handle(), listener.endpoint().c_str()); };
  if (context->call([&] { return retry_zmq(bind_it); }) != 0) {
    const int error = libzmq.zmq_errno();
    ::close(duplicate);
    fail(Status::kInternal, "cannot listen at \"{}\": {}", listener.endpoint(), libzmq.zmq_strerror(error));
  }
  std::array<char, 256> text{};
  size_t size = text.size();
  if (libzmq.zmq_getsockopt(socket_.handle(), ZMQ_LAST_ENDPOINT, text.data(), &size) == 0) bound_ = text.data();
}

// A peer that learns of the end may listen at this port at once, so libzmq has to close its duplicate first. To unbind
// drops queued messages: with last words the port becomes free at the end of the context, with the worker.
void BoundRouter::unbind() {
  const Nanos last_words = socket_.context().last_words();
  socket_.let_linger(last_words);
  const bool is_ending = last_words == 0 && !bound_.empty() && libzmq.zmq_unbind(socket_.handle(), bound_.c_str()) == 0;
  if (is_ending && !is_ipc_) monitor_.wait_for(ZMQ_EVENT_CLOSED, kCloseTimeout);
}

}  // namespace distag
