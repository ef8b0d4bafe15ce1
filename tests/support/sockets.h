#pragma once

#include <memory>
#include <utility>

#include "base/fd_loop.h"
#include "transport/socket/socket_transport.h"
#include "transport/zmtp/zmtp_engine.h"

namespace distag::testing {

inline std::unique_ptr<SocketTransport> make_zmtp(FdLoop& loop, Security security = {}) {
  return std::make_unique<SocketTransport>(std::make_unique<ZmtpEngine>(loop), std::move(security));
}

}  // namespace distag::testing
