#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dautograd/dautograd_shared.h"
#include "dautograd/joint_steps.h"
#include "dautograd/part_state.h"
#include "dautograd/pass_grads.h"
#include "dautograd/pass_graph.h"
#include "dautograd/pass_info.h"
#include "dautograd/pass_reach.h"

namespace distag {

// How the part of a pass on one worker finds out which pairs it reaches, and when it may run. On the loop.
//
//   SearchWay  walks, and asks the workers that the walks come to (SMART)
//   PlanWay    is told the pairs, walks, and compares
//   FastWay    takes all pairs of the context
//
// A part has one way at a time; the one that begins the pass may go from a search to a plan, before it has asked
// anyone. Each walk that a way starts in the graph comes back to it, by on_walked() or on_walk_failed(). A way reports
// to the state of the part, and touches nothing of its own after a report that may end the part.
class PassWay {
 public:
  // The rest of the part, which outlives its way.
  struct Part {
    DautogradShared& shared;
    DistributedContext& context;
    const PassInfo& info;
    PassGraph& graph;
    PartState& state;
    PassReach& reach;
    PassGrads& grads;
    JointSteps& joint;
  };
  using Reached = std::vector<autograd::GraphWalk::Reached>;
  using Entries = std::vector<std::shared_ptr<autograd::Node>>;

  explicit PassWay(Part part) : part_(part) {}
  virtual ~PassWay() = default;
  PassWay(const PassWay&) = delete;
  PassWay& operator=(const PassWay&) = delete;

  // At the worker that begins the pass. If a walk from the roots is over already, with what it has reached.
  virtual void begin(std::vector<autograd::Edge> roots, Reached reached, Entries entries) = 0;
  // `entries` are those of which the other members have yet to be told. This may be gone afterwards.
  virtual void on_walked(const Id& walk, const Reached& reached, const Entries& entries) = 0;
  virtual void on_walk_failed(const Id& walk, const Error& error) = 0;

  // The part is to run. False: it still searches.
  virtual bool end_search() { return true; }
  // The send of a gradient that has come. nullptr: it fits nothing here, and the part has failed. Throws Violation.
  virtual std::shared_ptr<SendNode> find_send(const Peer& from, const Id& pair);
  // Delivers the gradient, now or when all is checked.
  virtual void take(PassGrads::Gradient gradient) { part_.grads.deliver(std::move(gradient)); }
  virtual bool may_be_done() const { return true; }

  virtual bool is_planned() const { return false; }
  virtual bool is_misplanned() const { return false; }  // the part has failed because the plan does not hold here
  virtual bool is_searching() const { return false; }
  // For reports: the workers and messages without which the part cannot run.
  virtual std::vector<std::string> waits_for() const { return {}; }

  // Throw Violation for what their sender may not send, and any other Error for what cannot be done here.
  virtual void on_discover(const Peer& from, const wire::Discover& discover);
  virtual Heard on_discovered(const Peer& from, const wire::Discovered& discovered);
  virtual void on_expect(const Peer& from, const wire::Expect& expect);
  // No initiator waits for the end of the part any more; a worker may still wait for an answer.
  virtual void on_initiator_lost(const Error&) {}

 protected:
  // The error for a gradient that fits nothing here.
  virtual Error unreached(const SendNode& recorded) const;

  Part part_;
};

}  // namespace distag
