#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/each_step.h"
#include "group/shared.h"
#include "worker/arrivals.h"
#include "worker/group_links.h"
#include "worker/layers.h"
#include "worker/members.h"
#include "worker/reports.h"
#include "worker/router.h"
#include "worker/start.h"
#include "worker/worker.h"
#include "worker/worker_view.h"

namespace distag {

// Lives on the loop, except for `view`.
struct Worker::State {
  State(WorkerEnvironment given, WorkerOptions wanted)
      : environment(std::move(given)),
        options(std::move(wanted)),
        layers(environment, options),
        event_log(environment.loop, layers.group.shared()->trace),
        members(environment, layers, links, event_log),
        router(environment.loop, environment.log, layers, options.initiators),
        gate(environment.loop),
        view(options.name, options.world_size),
        start(environment, options, phase, layers, links, view, event_log, gate, members),
        arrivals(environment, phase, layers, links, event_log, gate, router, members, start),
        reports(environment, options, layers, links, view, event_log, phase) {}

  WorkerEnvironment environment;
  const WorkerOptions options;
  Layers layers;

  WorkerPhase phase = WorkerPhase::kCreated;
  const std::shared_ptr<Future<ShutdownReport>> stop_future = Future<ShutdownReport>::make();
  int failures = 0;  // of tasks of the loop
  GroupLinks links;
  EventLog event_log;
  Members members;
  Router router;

  StartGate gate;
  WorkerView view;
  Start start;
  Arrivals arrivals;
  Reports reports;

  void begin_stop(Nanos deadline);
  void close_soon(const std::shared_ptr<Future<ShutdownReport>>& left);
  EachStep stop_parts();
  void end(ShutdownReport report);
  void close_in_turns(const ShutdownReport& report);
  void close(ShutdownReport report, bool is_last_attempt = false);
  void end_by_failure(const Error& error);
  void note_failure(const Error& error);
};

}  // namespace distag
