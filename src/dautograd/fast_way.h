#pragma once

#include <vector>

#include "dautograd/pass_way.h"

namespace distag {

// A part that takes all sends recorded so far as live, and the roots with them (FAST): no worker is asked. A send that
// the roots do not depend on would wait for ever, which the initiator's probes find out. On the loop.
class FastWay final : public PassWay {
 public:
  explicit FastWay(Part part) : PassWay(part) {}

  // Called also at the other workers, without roots.
  void begin(std::vector<autograd::Edge> roots, Reached reached, Entries entries) override;
  // Walks of this way belong to no request.
  void on_walked(const Id&, const Reached&, const Entries&) override {}
  void on_walk_failed(const Id&, const Error& error) override { part_.state.fail(error); }

 private:
  Error unreached(const SendNode& recorded) const override;
};

}  // namespace distag
