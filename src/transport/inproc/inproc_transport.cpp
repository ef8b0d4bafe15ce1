#include "transport/inproc/inproc_transport.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "transport/inproc/inproc_acceptor.h"
#include "transport/inproc/inproc_connection.h"
#include "transport/inproc/inproc_mailbox.h"

namespace distag {
namespace {

std::atomic<uint64_t> last_private_address{0};

void check_name(const std::string& endpoint) {
  if (endpoint.starts_with("inproc://") && endpoint.size() > std::strlen("inproc://")) return;
  fail(Status::kInvalidArgument, "\"{}\" is no endpoint of this transport: give \"inproc://name\"", endpoint);
}

}  // namespace

InprocTransport::InprocTransport(Loop& loop) : port_(std::make_shared<InprocPort>(loop)) {}

InprocTransport::~InprocTransport() { port_->close(); }

std::unique_ptr<Acceptor> InprocTransport::listen(const std::string& address, AcceptorEvents events) {
  port_->assert_on_loop();
  check_name(address);
  return std::make_unique<InprocAcceptor>(port_, address, std::move(events));
}

std::unique_ptr<Connection> InprocTransport::dial(const std::string& endpoint, ConnectionEvents events) {
  port_->assert_on_loop();
  check_name(endpoint);
  return std::make_unique<InprocConnection>(port_, endpoint, std::move(events));
}

void InprocTransport::check_endpoint(const std::string& endpoint) const { check_name(endpoint); }

std::string InprocTransport::private_address() {
  // The process in the name is for people: each process has its own table.
  return fmt::format("inproc://private-{}-{}", getpid(), ++last_private_address);
}

}  // namespace distag
