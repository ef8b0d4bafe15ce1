#include "worker/socket_engines.h"

#include "base/error.h"
#include "transport/zmq/zmq_engine.h"
#include "transport/zmtp/zmtp_engine.h"

namespace distag {
namespace {

constexpr SocketEngineKind kDefaultEngine = SocketEngineKind::kZmq;
// A lease is checked in quarters: with this many looks, bytes of a slow connection are seen before each quarter ends.
constexpr Nanos kLooksPerLease = 8;

}  // namespace

SocketEngineKind choose_socket_engine(SocketEngineKind option, const char* environment) {
  if (option != SocketEngineKind::kDefault) return option;
  const std::string named = environment == nullptr ? "" : environment;
  if (named.empty()) return kDefaultEngine;
  if (named == "zmq") return SocketEngineKind::kZmq;
  if (named == "zmtp") return SocketEngineKind::kZmtp;
  fail(Status::kInvalidArgument, "DISTAG_SOCKET_ENGINE is \"{}\": set it to zmq or zmtp, or not at all", named);
}

std::unique_ptr<SocketEngine> make_socket_engine(SocketEngineKind chosen, FdLoop& loop, Executor* ender, Nanos lease) {
  if (chosen == SocketEngineKind::kZmtp) return std::make_unique<ZmtpEngine>(loop);
  return std::make_unique<ZmqEngine>(loop, ender, lease / kLooksPerLease);
}

}  // namespace distag
