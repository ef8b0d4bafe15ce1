#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "base/fd_loop.h"
#include "transport/security.h"
#include "transport/socket/address.h"
#include "transport/socket/engine_promises.h"
#include "transport/transport.h"

namespace distag {

// Speaks ZMTP 3 over sockets of tcp and ipc: makes the acceptors and connections of a SocketTransport, which decides on
// addresses and keys. Made, used and destroyed on its loop, or while that does not run; its acceptors and connections
// may outlive it.
class SocketEngine {
 public:
  virtual ~SocketEngine() = default;

  virtual FdLoop& loop() const = 0;
  virtual SocketReport report() const = 0;
  // The limit of open files that a member of a group of that size needs: for its sockets, and for the host.
  virtual size_t descriptors_for(size_t members) const = 0;
  // How far the engine keeps that promise, in the words of SECURITY.md.
  virtual std::string_view promise(EnginePromise promise) const = 0;
  // Like Transport::let_last_words_go.
  virtual void let_last_words_go() = 0;
  // Throws INVALID_STATE when the address is in use, OUT_OF_MEMORY when descriptors run out, else INVALID_ARGUMENT.
  virtual std::unique_ptr<Acceptor> listen(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                           AcceptorEvents events) = 0;
  // Throws OUT_OF_MEMORY when descriptors run out.
  virtual std::unique_ptr<Connection> dial(const SocketAddress& address, const std::optional<SocketKeys>& keys,
                                           ConnectionEvents events) = 0;
};

}  // namespace distag
