#pragma once

#include <memory>

#include "transport/security.h"
#include "transport/transport.h"
#include "transport/zmq/address.h"
#include "transport/zmq/zmq_context.h"

namespace distag {

// Dials with a DEALER that lives for this one connection. Throws OUT_OF_MEMORY when descriptors run out. On the loop.
class ZmqConnection final : public Connection {
 public:
  ZmqConnection(const std::shared_ptr<ZmqContext>& context, const SocketAddress& address,
                const std::optional<SocketKeys>& keys, ConnectionEvents events);
  ~ZmqConnection() override;

  bool send(const Frames& frames) override;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
