#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/fd_loop.h"
#include "transport/socket/socket_transport.h"
#include "transport/zmq/zmq_engine.h"
#include "transport/zmtp/zmtp_engine.h"

namespace distag::testing {

inline std::unique_ptr<SocketTransport> make_zmtp(FdLoop& loop, Security security = {}) {
  return std::make_unique<SocketTransport>(std::make_unique<ZmtpEngine>(loop), std::move(security));
}

inline std::unique_ptr<SocketTransport> make_zmq(FdLoop& loop, Security security = {}) {
  return std::make_unique<SocketTransport>(std::make_unique<ZmqEngine>(loop), std::move(security));
}

// For suites that run with both engines.
enum class Engine { kZmtp, kZmq };

inline std::unique_ptr<SocketTransport> make_sockets(Engine engine, FdLoop& loop, Security security = {}) {
  return engine == Engine::kZmq ? make_zmq(loop, std::move(security)) : make_zmtp(loop, std::move(security));
}

inline std::string name_of(Engine engine) { return engine == Engine::kZmq ? "zmq" : "zmtp"; }
inline void PrintTo(Engine engine, std::ostream* out) { *out << name_of(engine); }

// Whether the engine keeps the promise of that row of SECURITY.md, as in capi/support/engine.h.
inline bool engine_keeps(Engine engine, const char* row) {
  static_cast<void>(row);
  return engine == Engine::kZmtp;
}

// For suites that ask for that promise alone.
inline auto engines_that_keep(const char* row) {
  std::vector<Engine> found;
  for (const Engine engine : {Engine::kZmtp, Engine::kZmq}) {
    if (engine_keeps(engine, row)) found.push_back(engine);
  }
  return ::testing::ValuesIn(found);
}

inline const auto kBothEngines = ::testing::Values(Engine::kZmtp, Engine::kZmq);
inline const auto kEngineName = [](const ::testing::TestParamInfo<Engine>& info) { return name_of(info.param); };

}  // namespace distag::testing
