#include "worker/worker.h"

#include <utility>

#include "base/each_step.h"
#include "group/shared.h"
#include "worker/arrivals.h"
#include "worker/ending.h"
#include "worker/reports.h"

namespace distag {

// The parts of a worker, each given those above it, so they end in reverse order. Only the start and the end change the
// phase. All are on the loop, except the view and methods that the layers' headers allow on threads.
struct Worker::State {
  State(WorkerEnvironment given, WorkerOptions wanted)
      : environment(std::move(given)),
        options(std::move(wanted)),
        layers(environment, options),
        view(options.name, options.world_size),
        events(environment.loop, layers.group.shared()->trace),
        gate(environment.loop),
        members(environment, layers, links, events),
        router(environment.loop.clock(), environment.log, layers, options.initiators),
        start(environment, options, phase, layers, links, view, events, gate, members),
        arrivals(environment, phase, layers, links, events, gate, router, members, start),
        reports(environment, options, layers, links, view, events, phase),
        ending(environment, phase, layers, links, view, events, start) {}

  WorkerEnvironment environment;
  const WorkerOptions options;
  WorkerPhase phase = WorkerPhase::kCreated;
  Layers layers;
  GroupLinks links;
  WorkerView view;
  EventLog events;
  StartGate gate;
  Members members;
  Router router;
  Start start;
  Arrivals arrivals;
  Reports reports;
  Ending ending;
};

Worker::Worker(WorkerEnvironment environment, WorkerOptions options)
    : state_(std::make_shared<State>(std::move(environment), std::move(options))) {}

Worker::~Worker() = default;

Group& Worker::group() { return state_->layers.group; }
Rpc& Worker::rpc() { return state_->layers.rpc; }
Rrefs& Worker::rrefs() { return state_->layers.rrefs; }
Meshes& Worker::meshes() { return state_->layers.meshes; }
spmd::ProgramTable& Worker::programs() { return state_->layers.programs; }
Dautograd& Worker::dautograd() { return state_->layers.dautograd; }
optim::Optim& Worker::optim() { return state_->layers.optim; }
Log& Worker::log() { return state_->environment.log; }
Loop& Worker::loop() { return state_->environment.loop; }
const WorkerOptions& Worker::options() const { return state_->options; }
bool Worker::is_started() const { return state_->view.get().started; }
std::string Worker::name() const { return state_->view.get().name; }
int32_t Worker::rank() const { return state_->view.get().rank; }
int32_t Worker::world_size() const {
  const WorkerView::Facts view = state_->view.get();
  return view.is_open_world ? static_cast<int32_t>(state_->layers.group.membership().alive_count()) : view.world_size;
}

WorkerStats Worker::stats() const {
  WorkerStats stats;
  stats.rpc = state_->layers.rpc.stats();
  stats.dautograd = state_->layers.dautograd.stats();
  stats.rrefs = state_->layers.rrefs.stats();
  stats.callbacks_waiting = state_->environment.functions.waiting();
  const WorkerView::Facts view = state_->view.get();
  stats.session = view.session;
  return stats;
}

const Timings& Worker::timings() const { return state_->layers.group.shared()->trace.timings(); }

std::shared_ptr<Future<LoopStats>> Worker::fetch_loop_stats() {
  auto future = Future<LoopStats>::make();
  // After the shutdown the counters keep their last values.
  state_->environment.loop.post_or_drop([state = state_, owed = Owed(future)] {
    owed->complete(LoopStats{state->links.session ? state->links.stats() : state->view.get().session,
                             state->layers.rpc.request_bytes()});
  });
  return future;
}

// ---- reports ----

WorkerSnapshot Worker::snapshot_at_rest() const { return state_->reports.snapshot_at_rest(); }

std::shared_ptr<Future<WorkerSnapshot>> Worker::fetch_snapshot() {
  auto future = Future<WorkerSnapshot>::make();
  state_->environment.loop.post_or_drop(
      [state = state_, owed = Owed(future)] { owed->complete(state->reports.snapshot()); });
  return future;
}

std::shared_ptr<Future<ContextSnapshot>> Worker::fetch_snapshot(const Id& context) {
  auto future = Future<ContextSnapshot>::make();
  state_->environment.loop.post_or_drop([state = state_, owed = Owed(future), context] {
    try {
      owed->complete(state->layers.dautograd.context(context));
    } catch (...) {
      owed->fail(current_error());
    }
  });
  return future;
}

std::string Worker::look() const { return write_look(state_->reports.look()); }

std::shared_ptr<Future<std::string>> Worker::fetch_group_report(Nanos timeout) {
  auto done = Future<std::string>::make();
  state_->environment.loop.post_or_drop([state = state_, timeout, owed = Owed(done)]() mutable {
    const std::shared_ptr<Future<std::string>> asked = owed.take();
    try {
      state->reports.ask_group(timeout, asked);
    } catch (...) {
      asked->fail(current_error());
    }
  });
  return done;
}

// ---- start ----

std::shared_ptr<Future<Value>> Worker::start(Nanos timeout) {
  auto future = Future<Value>::make();
  future->set_operation("start of the worker");
  // A cancel reaches the loop as a task, when this start may be over and another one under way.
  future->set_canceller([weak = std::weak_ptr<State>(state_), begun = future.get()] {
    const auto state = weak.lock();
    if (state == nullptr) return;
    state->environment.loop.post_or_drop([state, begun] { state->start.cancel(begun); });
  });
  const Nanos deadline = deadline_after(state_->environment.loop.now(), timeout);
  const bool is_taken = state_->environment.loop.post([state = state_, owed = Owed(future), deadline]() mutable {
    state->start.begin(std::move(owed), deadline, state->arrivals);
  });
  if (!is_taken) distag::fail(Status::kInvalidState, "start: the worker is shut down");
  return future;
}

// ---- shutdown ----

const std::shared_ptr<Future<ShutdownReport>>& Worker::when_stopped() const { return state_->ending.report(); }

std::shared_ptr<Future<ShutdownReport>> Worker::shutdown(Nanos timeout) {
  auto future = Future<ShutdownReport>::make();
  const Nanos deadline = deadline_after(state_->environment.loop.now(), timeout);
  when_stopped()->on_done([outcome = when_stopped().get(), future] {
    EachStep each;
    each([outcome, &future] { future->complete(outcome->value()); });
    fail_dropped(*future);  // without memory for the report
  });
  // A loop that takes no tasks any more was stopped after the worker.
  state_->environment.loop.post_or_drop([state = state_, deadline] { state->ending.begin(deadline); });
  return future;
}

void Worker::on_loop_failure(const Error& error) noexcept {
  assert_on_loop(state_->environment.loop);
  state_->ending.on_loop_failure(error);
}

void Worker::lose_members(std::vector<std::string> names, const Error& why) {
  state_->environment.loop.post_or_drop([state = state_, names = std::move(names), why] {
    if (state->links.session == nullptr) return;
    for (const std::string& name : names) {
      const std::shared_ptr<const Peer> peer = state->layers.group.membership().peer_named(name);
      if (peer == nullptr || state->links.session->gone(peer->incarnation) != nullptr) continue;
      state->links.session->fence(
          peer->incarnation, Error(why.status(), fmt::format("{} is lost: {}", describe_peer(*peer), why.message())));
    }
  });
}

}  // namespace distag
