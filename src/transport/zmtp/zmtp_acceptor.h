#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "transport/security.h"
#include "transport/socket/listener.h"
#include "transport/transport.h"

namespace distag {

class SocketTurns;

// Listens for DEALERs of ZeroMQ at an ipc or tcp address. It accepts none while fewer than kAcceptReserve descriptors
// are free: diallers wait, and connections that have not ended their handshake give way. With keys it refuses a client
// that has another key, or none. On the loop.
class ZmtpAcceptor final : public Acceptor {
 public:
  // Throws INVALID_STATE when the address is in use, OUT_OF_MEMORY when descriptors run out. After the destructor the
  // address is free again.
  ZmtpAcceptor(std::shared_ptr<SocketTurns> turns, const SocketAddress& address, const std::optional<SocketKeys>& keys,
               AcceptorEvents events, Nanos handshake_timeout = 5 * kSecond);
  ~ZmtpAcceptor() override;

  const std::string& endpoint() const override;
  bool reply(const ConnectionToken& to, Frames frames) override;
  std::string name_of(const ConnectionToken& from) const override;
  bool close_some() override { return false; }

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
