#pragma once

#include <memory>

#include "transport/socket/socket_engine.h"
#include "transport/zmq/zmq_context.h"

namespace distag {

class Executor;

// The engine by libzmq: a ROUTER for each address, a DEALER for each dialled connection.
class ZmqEngine final : public SocketEngine {
 public:
  // The interval of checks for bytes of unfinished messages: an eighth of a lease.
  static constexpr Nanos kLookInterval = 625 * kMillisecond;

  // `ender`: runs the end of the context, which waits; nullptr: the thread that releases the last socket does.
  explicit ZmqEngine(FdLoop& loop, Executor* ender = nullptr, Nanos look_interval = kLookInterval,
                     Nanos last_words = ZmqContext::kLastWords);

  FdLoop& loop() const override;
  SocketReport report() const override;
  size_t descriptors_for(size_t members) const override;
  std::string_view promise(EnginePromise promise) const override;
  void let_last_words_go() override;
  std::unique_ptr<Acceptor> listen(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                   AcceptorEvents events) override;
  std::unique_ptr<Connection> dial(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                   ConnectionEvents events) override;

 private:
  const std::shared_ptr<ZmqContext> context_;
  const Nanos look_interval_;
};

}  // namespace distag
