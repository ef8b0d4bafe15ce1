#pragma once

#include <vector>

#include "dautograd/pass_way.h"

namespace distag {

// A part that takes all sends recorded so far for live, and the roots with them: no worker is asked, and a send that
// the roots do not depend on would wait for ever, which the probes of the initiator find out (FAST). On the loop.
class FastWay final : public PassWay {
 public:
  explicit FastWay(Part part) : PassWay(part) {}

  // Also at the other workers, without roots.
  void begin(std::vector<autograd::Edge> roots, Reached reached, Entries entries) override;
  // Its walks are for no request.
  void on_walked(const Id&, const Reached&, const Entries&) override {}
  void on_walk_failed(const Id&, const Error& error) override { part_.state.fail(error); }

 private:
  Error unreached(const SendNode& recorded) const override;
};

}  // namespace distag
