#include "transport/zmq/zmq_engine.h"

#include <utility>

#include "base/error.h"
#include "transport/zmq/libzmq.h"
#include "transport/zmq/zmq_acceptor.h"
#include "transport/zmq/zmq_connection.h"
#include "transport/zmq/zmq_context.h"
#include "transport/zmq/zmq_socket.h"

namespace distag {

ZmqEngine::ZmqEngine(FdLoop& loop, Executor* ender, Nanos look_interval)
    : context_(std::make_shared<ZmqContext>(loop, ender)), look_interval_(look_interval) {}

FdLoop& ZmqEngine::loop() const { return context_->loop(); }

// Measured with 4.3.4: a connection that is dialled takes its mailbox, the socket and two ends of a monitor, one that
// was accepted a socket; the context, ROUTER, monitor, ZAP and both copies of the listening socket take 11.
size_t ZmqEngine::descriptors_for(size_t members) const {
  constexpr size_t kOfOnePeer = 5, kOfContext = 11, kFree = 64;
  return kOfOnePeer * (members - 1) + kOfContext + kFree;
}

std::unique_ptr<Acceptor> ZmqEngine::listen(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                            AcceptorEvents events) {
  return std::make_unique<ZmqAcceptor>(context_, address, keys, std::move(events), look_interval_);
}

std::unique_ptr<Connection> ZmqEngine::dial(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                            ConnectionEvents events) {
  if (keys) require_zmq_curve();
  return std::make_unique<ZmqConnection>(context_, address, keys, std::move(events));
}

// The version is that of the library in this process.
SocketReport ZmqEngine::report() const {
  int major = 0, minor = 0, patch = 0;
  libzmq.zmq_version(&major, &minor, &patch);
  return {"zmq", fmt::format("{}.{}.{}", major, minor, patch)};
}

}  // namespace distag
