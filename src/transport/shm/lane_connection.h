#pragma once

#include <memory>
#include <string>

#include "transport/shm/lane_context.h"
#include "transport/transport.h"

namespace distag {

// Dials a lane, or else the transport below; the choice holds for the whole connection. On the loop.
class LaneConnection final : public Connection {
 public:
  LaneConnection(std::shared_ptr<LaneContext> context, std::shared_ptr<Transport> below, const std::string& endpoint,
                 ConnectionEvents events);
  ~LaneConnection() override;

  bool send(const Frames& frames) override;
  void lend(Frames& frames, size_t ahead) override;
  void distrust() override;
  std::string found() const override;
  uint64_t heard_bytes() const override;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
