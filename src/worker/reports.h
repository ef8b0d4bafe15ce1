#pragma once

#include <memory>
#include <string>

#include "worker/event_log.h"
#include "worker/flight_log.h"
#include "worker/group_links.h"
#include "worker/layers.h"
#include "worker/looking.h"
#include "worker/phase.h"
#include "worker/worker_view.h"

namespace distag {

// Reports about a worker: to its host, to people who look at its group, to its log when something breaks. Reads the
// other parts and changes none, so that a report never changes what it shows. On the loop, except the report of a
// worker whose loop does not run.
class Reports {
 public:
  Reports(const WorkerEnvironment& environment, const WorkerOptions& options, Layers& layers, const GroupLinks& links,
          const WorkerView& view, const EventLog& events, const WorkerPhase& phase);

  WorkerSnapshot snapshot_at_rest() const;  // any thread
  WorkerSnapshot snapshot() const;
  WorkerLook look() const;
  // Asks each member, and completes `done` with the report once all have answered or could not be asked.
  void ask_group(Nanos timeout, const std::shared_ptr<Future<std::string>>& done) const;

 private:
  WorkerSnapshot begin_snapshot() const;
  UnderWay under_way() const;

  const WorkerEnvironment& environment_;
  const WorkerOptions& options_;
  Layers& layers_;
  const GroupLinks& links_;
  const WorkerView& view_;
  const EventLog& events_;
  const WorkerPhase& phase_;
  const std::shared_ptr<FlightLog> flight_log_;
};

}  // namespace distag
