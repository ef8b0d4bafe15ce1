#pragma once

#include <set>
#include <vector>

#include "autograd/graph_task.h"
#include "wire/message.h"

namespace distag {

// Gets the reports of the part of a pass on one worker: is the initiator, or sends them on to the initiator elsewhere.
// On the loop.
class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // The walk from the roots is over here, and has reached no entry. True: a plan for what lies behind is known, so that
  // the part follows it now, or is over, and no worker is asked.
  virtual bool on_walked(const std::vector<autograd::GraphWalk::Reached>&) { return false; }
  // The plan holds here.
  virtual void on_checked() {}
  // Every walk that started here has come to its end everywhere; `participants`: those that the walks have met.
  virtual void on_planned(const std::set<Incarnation>& participants, bool has_entries) = 0;
  // All nodes here have run and all GRADs are numbered. `last`: one to the initiator that can carry this report.
  virtual void on_done(wire::Grad* last) = 0;
  // Called once, and nothing after it.
  virtual void on_failed(const Error& error) = 0;
};

}  // namespace distag
