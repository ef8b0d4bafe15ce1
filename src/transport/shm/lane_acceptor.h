#pragma once

#include <memory>
#include <string>

#include "transport/shm/lane_context.h"
#include "transport/transport.h"

namespace distag {

// Accepts lanes beside the connections of the transport below. On the loop.
class LaneAcceptor final : public Acceptor {
 public:
  // Without a listener all connections come from the transport below.
  LaneAcceptor(std::shared_ptr<LaneContext> context, std::unique_ptr<LaneListener> listener, Transport& below,
               const std::string& address, AcceptorEvents events);
  ~LaneAcceptor() override;

  const std::string& endpoint() const override;
  bool reply(const ConnectionToken& to, Frames frames) override;
  std::string name_of(const ConnectionToken&) const override { return {}; }  // with worker keys there are no lanes
  bool close_some() override;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
