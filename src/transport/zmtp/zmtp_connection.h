#pragma once

#include <memory>
#include <optional>

#include "base/clock.h"
#include "transport/security.h"
#include "transport/socket/address.h"
#include "transport/socket/socket_turns.h"
#include "transport/transport.h"

namespace distag {

// Dials as a DEALER of ZeroMQ. `refused`: the system says that the address has no listener, or its path does not exist.
// Messages wait until the tasks of this turn of the loop are done, so that many are sent at once; while Outbox::kFull
// bytes wait no message is taken. On the loop.
class ZmtpConnection final : public Connection {
 public:
  // The time limit of connect() and handshake together.
  static constexpr Nanos kDialTimeout = 10 * kSecond;

  // Throws OUT_OF_MEMORY when descriptors run out.
  ZmtpConnection(std::shared_ptr<SocketTurns> turns, const SocketAddress& address,
                 const std::optional<SocketKeys>& keys, ConnectionEvents events, Nanos dial_timeout = kDialTimeout);
  ~ZmtpConnection() override;

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
