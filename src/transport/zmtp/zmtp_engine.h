#pragma once

#include <memory>

#include "transport/socket/socket_engine.h"

namespace distag {

class SocketTurns;

// ZMTP and CURVE by distag's own code, over plain sockets: without a thread, and with all memory and descriptors under
// its control.
class ZmtpEngine final : public SocketEngine {
 public:
  explicit ZmtpEngine(FdLoop& loop);

  FdLoop& loop() const override;
  SocketReport report() const override { return {"zmtp", {}}; }
  size_t descriptors_for(size_t members) const override;
  std::string_view promise(EnginePromise promise) const override;
  void let_last_words_go() override {}  // each end sends what the system takes without waiting
  std::unique_ptr<Acceptor> listen(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                   AcceptorEvents events) override;
  std::unique_ptr<Connection> dial(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                   ConnectionEvents events) override;

 private:
  const std::shared_ptr<SocketTurns> turns_;
};

}  // namespace distag
