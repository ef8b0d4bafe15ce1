#pragma once

#include <memory>
#include <string>

#include "transport/transport.h"
#include "transport/zmq/address.h"
#include "transport/zmq/zmq_context.h"

namespace distag {

// Listens with a ROUTER. Throws INVALID_STATE when the address is in use, OUT_OF_MEMORY when descriptors run out. Once
// it is destroyed the address can be listened at again. On the loop.
class ZmqAcceptor final : public Acceptor {
 public:
  ZmqAcceptor(const std::shared_ptr<ZmqContext>& context, const SocketAddress& address, AcceptorEvents events);
  ~ZmqAcceptor() override;

  const std::string& endpoint() const override;
  bool reply(const ConnectionToken& to, Frames frames) override;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
