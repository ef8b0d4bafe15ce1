#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/security.h"
#include "transport/socket/address.h"
#include "transport/transport.h"
#include "transport/zmq/zmq_context.h"

namespace distag {

// Dials with a DEALER of libzmq that lives for this one connection. On the loop. At its end queued messages are
// dropped, or sent for ZmqContext::last_words(): only the end of the context waits for them.
class ZmqConnection final : public Connection {
 public:
  // Throws OUT_OF_MEMORY when descriptors run out.
  ZmqConnection(const std::shared_ptr<ZmqContext>& context, const SocketAddress& address,
                const std::optional<SocketKeys>& keys, ConnectionEvents events);
  ~ZmqConnection() override;

  bool send(const Frames& frames) override;
  void lend(Frames&, size_t) override {}
  void distrust() override {}
  std::string found() const override;
  uint64_t heard_bytes() const override;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
