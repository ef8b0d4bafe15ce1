#include "transport/zmq/zmq_transport.h"

#include <utility>

#include "base/error.h"
#include "transport/zmq/address.h"
#include "transport/zmq/private_directory.h"
#include "transport/zmq/zmq_connection.h"
#include "transport/zmq/zmq_context.h"
#include "transport/zmq/zmtp_acceptor.h"

namespace distag {

ZmqTransport::ZmqTransport(FdLoop& loop) : context_(std::make_shared<ZmqContext>(loop)) {}

ZmqTransport::~ZmqTransport() = default;

std::unique_ptr<Acceptor> ZmqTransport::listen(const std::string& address, AcceptorEvents events) {
  assert_on_loop(context_->loop());
  const SocketAddress parsed = parse_address(address, true);
  if (!parsed.is_local()) {
    fail(Status::kUnsupported,
         "\"{}\" can be reached from other machines, which needs keys (CURVE) that this version does not have: listen "
         "at ipc:///path or at a loopback address, tcp://127.0.0.1:port",
         address);
  }
  return std::make_unique<ZmtpAcceptor>(context_->loop(), parsed, std::move(events));
}

std::unique_ptr<Connection> ZmqTransport::dial(const std::string& endpoint, ConnectionEvents events) {
  assert_on_loop(context_->loop());
  return std::make_unique<ZmqConnection>(context_, parse_address(endpoint, false), std::move(events));
}

void ZmqTransport::check_endpoint(const std::string& endpoint) const { parse_address(endpoint, false); }

std::string ZmqTransport::private_address() {
  assert_on_loop(context_->loop());
  if (!directory_) directory_ = std::make_unique<PrivateDirectory>();
  std::string address = fmt::format("ipc://{}/{}", directory_->path(), ++last_address_);
  // Says now that the path is too long, not when somebody listens there.
  parse_address(address, true);
  return address;
}

}  // namespace distag
