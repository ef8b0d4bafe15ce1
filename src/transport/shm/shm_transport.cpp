#include "transport/shm/shm_transport.h"

#include <utility>

#include "base/error.h"
#include "transport/shm/lane_acceptor.h"
#include "transport/shm/lane_connection.h"
#include "transport/shm/lane_context.h"

namespace distag {

ShmTransport::ShmTransport(FdLoop& loop, std::shared_ptr<Transport> below, const std::string& why_off,
                           Executor* background, uint64_t worker)
    : below_(std::move(below)), context_(std::make_shared<LaneContext>(loop, background, worker)) {
  context_->report().is_on = why_off.empty();
  context_->report().why_off = why_off;
}

ShmTransport::~ShmTransport() = default;

// Lanes first: a worker that can dial the endpoint then finds them there.
std::unique_ptr<Acceptor> ShmTransport::listen(const std::string& address, AcceptorEvents events) {
  assert_on_loop(context_->loop());
  std::unique_ptr<LaneListener> listener;
  try {
    const std::optional<SocketAddress> lane = lane_address(address);
    if (lane && context_->report().is_on) {
      listener = std::make_unique<LaneListener>(*lane);
      context_->begin_lending();
    }
  } catch (...) {
    // Peers are not offered a lane; the transport below reports problems of the address itself.
    context_->note_way(address, current_error().message());
  }
  return std::make_unique<LaneAcceptor>(context_, std::move(listener), *below_, address, std::move(events));
}

std::unique_ptr<Connection> ShmTransport::dial(const std::string& endpoint, ConnectionEvents events) {
  assert_on_loop(context_->loop());
  return std::make_unique<LaneConnection>(context_, below_, endpoint, std::move(events));
}

LaneReport ShmTransport::lane_report() const {
  assert_on_loop(context_->loop());
  return context_->make_report();
}

}  // namespace distag
