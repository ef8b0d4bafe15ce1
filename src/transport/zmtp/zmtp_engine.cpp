#include "transport/zmtp/zmtp_engine.h"

#include <utility>

#include "transport/socket/descriptors.h"
#include "transport/socket/socket_turns.h"
#include "transport/zmtp/zmtp_acceptor.h"
#include "transport/zmtp/zmtp_connection.h"

namespace distag {

ZmtpEngine::ZmtpEngine(FdLoop& loop) : turns_(std::make_shared<SocketTurns>(loop)) {}

FdLoop& ZmtpEngine::loop() const { return turns_->loop(); }

// A connection each way to each of the others.
size_t ZmtpEngine::descriptors_for(size_t members) const { return 2 * (members - 1) + kDialReserve; }

std::unique_ptr<Acceptor> ZmtpEngine::listen(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                             AcceptorEvents events) {
  return std::make_unique<ZmtpAcceptor>(turns_, address, keys, std::move(events));
}

std::unique_ptr<Connection> ZmtpEngine::dial(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                             ConnectionEvents events) {
  return std::make_unique<ZmtpConnection>(turns_, address, keys, std::move(events));
}

}  // namespace distag
