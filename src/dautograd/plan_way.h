#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dautograd/expectation.h"
#include "dautograd/pass_way.h"

namespace distag {

// A part that is told which pairs it reaches. It walks from them, and runs once the walk has reached the recvs that the
// plan names. GRADs of other workers may come before the plan, or before the walk is over: they wait in the
// Expectation. Where the plan does not hold the part fails as misplanned, and the initiator searches. On the loop.
class PlanWay final : public PassWay {
 public:
  explicit PlanWay(Part part) : PassWay(part) {}

  // The gradients of these sends will come. Walks, and checks, before any of them is delivered.
  void follow(const std::vector<wire::PairBits>& sends, uint64_t check);

  void begin(std::vector<autograd::Edge>, Reached, Entries) override {}  // done by the search that this replaces
  void on_walked(const Id& walk, const Reached& reached, const Entries& entries) override;
  void on_walk_failed(const Id& walk, const Error& error) override;
  std::shared_ptr<SendNode> find_send(const Peer& from, const Id& pair) override;
  void take(PassGrads::Gradient gradient) override;
  bool may_be_done() const override { return expectation_.is_checked(); }
  bool is_planned() const override { return true; }
  bool is_misplanned() const override { return is_misplanned_; }
  std::vector<std::string> waits_for() const override;
  void on_expect(const Peer& from, const wire::Expect& expect) override;

 private:
  void deliver(PassGrads::Gradient gradient);
  void misplan(const std::string& why);

  Expectation expectation_;
  bool is_misplanned_ = false;
};

}  // namespace distag
