#pragma once

#include <memory>
#include <optional>
#include <string>

#include "transport/security.h"
#include "transport/socket/address.h"
#include "transport/transport.h"
#include "transport/zmq/zmq_context.h"

namespace distag {

// Listens with a ROUTER of libzmq. On the loop. distag makes the listening socket (Listener), and libzmq gets a
// duplicate of it with the first dialler: until then no socket of libzmq exists. At its end queued messages are
// dropped, or sent for ZmqContext::last_words(), and only the end of the context waits for them.
class ZmqAcceptor final : public Acceptor {
 public:
  // `look_interval`: how often the connections are checked for bytes of an unfinished message (on_part).
  ZmqAcceptor(std::shared_ptr<ZmqContext> context, const SocketAddress& address, const std::optional<SocketKeys>& keys,
              AcceptorEvents events, Nanos look_interval);
  ~ZmqAcceptor() override;

  const std::string& endpoint() const override;
  bool reply(const ConnectionToken& to, Frames frames) override;
  std::string name_of(const ConnectionToken& from) const override;
  bool close_some() override { return false; }

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
