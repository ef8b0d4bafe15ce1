#include "transport/zmtp/zmtp_engine.h"

#include <utility>

#include "transport/socket/descriptors.h"
#include "transport/socket/socket_turns.h"
#include "transport/zmtp/zmtp_acceptor.h"
#include "transport/zmtp/zmtp_connection.h"

namespace distag {

ZmtpEngine::ZmtpEngine(FdLoop& loop) : turns_(std::make_shared<SocketTurns>(loop)) {}

FdLoop& ZmtpEngine::loop() const { return turns_->loop(); }

// A connection in each direction to each of the others.
size_t ZmtpEngine::descriptors_for(size_t members) const { return 2 * (members - 1) + kLeftForHost; }

std::unique_ptr<Acceptor> ZmtpEngine::listen(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                             AcceptorEvents events) {
  return std::make_unique<ZmtpAcceptor>(turns_, address, keys, std::move(events));
}

std::unique_ptr<Connection> ZmtpEngine::dial(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                             ConnectionEvents events) {
  return std::make_unique<ZmtpConnection>(turns_, address, keys, std::move(events));
}

std::string_view ZmtpEngine::promise(EnginePromise promise) const {
  switch (promise) {
    case EnginePromise::kProcessLives:
      return "yes";
    case EnginePromise::kDescriptorsRunOut:
      return "diallers wait, 8 stay free";
    case EnginePromise::kMemoryRunsOut:
      return "OUT_OF_MEMORY";
    case EnginePromise::kSilentConnections:
      return "at most 1,024 at each address, for 5 s";
    case EnginePromise::kAddressLogged:
      return "always";
    case EnginePromise::kHangUpWithoutAWord:
      return "not counted";
    case EnginePromise::kDiallerOfAnotherUser:
      return "none of its bytes are read";
    case EnginePromise::kListenerOfAnotherUser:
      return "none of a worker goes there";
    case EnginePromise::kMemoryOfAStranger:
      return "20 KiB";
    case EnginePromise::kFramesInOrder:
      return "the connection ends";
    case EnginePromise::kDeniedDialler:
      return "at once, by what the handshake says; by a listener of libzmq as beside";
    case EnginePromise::kBudgets:
      return "yes";
    case EnginePromise::kForkedChild:
      return "yes, except a connection that opened or closed during the fork";
    case EnginePromise::kKeysInMemory:
      return "wiped after the handshake";
  }
  return {};
}

}  // namespace distag
