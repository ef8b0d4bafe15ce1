#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/each_step.h"
#include "group/shared.h"
#include "worker/greeting.h"
#include "worker/group_links.h"
#include "worker/layers.h"
#include "worker/members.h"
#include "worker/place_finder.h"
#include "worker/reports.h"
#include "worker/router.h"
#include "worker/start_gate.h"
#include "worker/worker.h"
#include "worker/worker_view.h"

namespace distag {

// Lives on the loop, except for `view`.
struct Worker::State {
  State(WorkerEnvironment given, WorkerOptions wanted)
      : environment(std::move(given)),
        options(std::move(wanted)),
        layers(environment, options),
        finder(std::make_shared<PlaceFinder>(environment.loop, environment.compute, environment.places)),
        event_log(environment.loop, layers.group.shared()->trace),
        members(environment, layers, links, event_log),
        router(environment.loop, environment.log, layers, options.initiators),
        gate(environment.loop),
        view(options.name, options.world_size),
        reports(environment, options, layers, links, view, event_log, phase) {}

  WorkerEnvironment environment;
  const WorkerOptions options;
  Layers layers;
  const std::shared_ptr<PlaceFinder> finder;

  WorkerPhase phase = WorkerPhase::kCreated;
  std::shared_ptr<Future<Value>> start_future;
  const std::shared_ptr<Future<ShutdownReport>> stop_future = Future<ShutdownReport>::make();
  int failures = 0;  // of tasks of the loop
  GroupLinks links;
  EventLog event_log;
  Members members;
  Router router;
  Nanos start_deadline = kNever;

  // The start, from the roster on, and what members do meanwhile: led on once the service begins.
  std::vector<Peer> roster;
  std::unique_ptr<Greeting> greeting;
  StartGate gate;
  TaskPlace failure_place;  // of the end of the start

  WorkerView view;
  Reports reports;

  void begin_start(Nanos deadline, SessionEvents& events);
  void check_advertised(const std::string& address) const;
  void open(const Places& found, SessionEvents& events);
  void join(const Places& found);
  void on_joined(Rendezvous::Outcome outcome);
  void meet(std::vector<Peer> members);
  void begin_service_soon();
  void on_greeted(std::optional<Error> error);
  void fail_start_soon(Error error);
  void begin_service();
  void forget_start();
  void abandon_start(const Error& error);
  void begin_stop(Nanos deadline);
  void close_soon(const std::shared_ptr<Future<ShutdownReport>>& left);
  EachStep stop_parts();
  void end(ShutdownReport report);
  void close_in_turns(const ShutdownReport& report);
  void close(ShutdownReport report, bool is_last_attempt = false);
  void end_by_failure(const Error& error);
  void note_failure(const Error& error);
  Heard keep_for_start(const Peer& from, wire::Message& message);
  void refuse_early(const Peer& from, const wire::Message& outline, Error why);
  bool lead_early(const Peer& from, wire::Message& message);
};

}  // namespace distag
