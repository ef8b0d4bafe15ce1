#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/own_descriptors.h"
#include "transport/socket/listener.h"
#include "transport/zmq/zmq_monitor.h"
#include "transport/zmq/zmq_socket.h"

namespace distag {

// A ROUTER that accepts from a listener's backlog, by a duplicate of its descriptor, and the monitor of its
// connections, on the loop.
class BoundRouter {
 public:
  // `domain`: of the ZAP handler, which is there already: without it libzmq admits all peers. Throws OUT_OF_MEMORY when
  // descriptors or sockets run out.
  BoundRouter(const std::shared_ptr<ZmqContext>& context, const Listener& listener, const SocketAddress& address,
              const std::optional<SocketKeys>& keys, const std::string& domain);

  ZmqSocket& socket() { return socket_; }
  ZmqMonitor& monitor() { return monitor_; }

  // An orderly end: queued answers still go for as long as the context gives them. The destructor follows.
  void unbind();

 private:
  NotedSocket duplicate_;  // of the listener's descriptor, for libzmq
  ZmqSocket socket_;
  ZmqMonitor monitor_;  // after the socket, to be destroyed before it
  std::string bound_;   // the endpoint as libzmq names it
  const bool is_ipc_;
};

}  // namespace distag
