#include "worker/worker.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/each_step.h"
#include "base/violation.h"
#include "worker/worker_state.h"

namespace distag {

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

const std::shared_ptr<Future<ShutdownReport>>& Worker::when_stopped() const { return state_->stop_future; }

std::shared_ptr<Future<ShutdownReport>> Worker::shutdown(Nanos timeout) {
  auto future = Future<ShutdownReport>::make();
  const Nanos deadline = deadline_after(state_->environment.loop.now(), timeout);
  state_->stop_future->on_done([outcome = state_->stop_future.get(), future] {
    EachStep each;
    each([outcome, &future] { future->complete(outcome->value()); });
    fail_dropped(*future);  // without memory for the report
  });
  // A loop that takes no task any more was stopped after the worker.
  state_->environment.loop.post_or_drop([state = state_, deadline] { state->begin_stop(deadline); });
  return future;
}

void Worker::State::begin_stop(Nanos deadline) {
  switch (phase) {
    case WorkerPhase::kStarting:
      start.abandon(Error(Status::kCancelled, "the worker was shut down"));
      [[fallthrough]];
    case WorkerPhase::kCreated:
      close(ShutdownReport{});
      return;
    case WorkerPhase::kStarted:
    case WorkerPhase::kStopping:
      break;  // again: an earlier deadline counts
    case WorkerPhase::kStopped:
      return;
  }
  const bool first = phase == WorkerPhase::kStarted;
  if (first) event_log.add("shutdown began");
  phase = WorkerPhase::kStopping;
  std::shared_ptr<Future<ShutdownReport>> left = layers.group.shutdown(deadline);
  if (first) close_soon(left);
}

// The report completes inside of group and session: they are taken down by a task of their own.
void Worker::State::close_soon(const std::shared_ptr<Future<ShutdownReport>>& left) {
  left->on_done([this, outcome = left.get()] {
    environment.loop.post_or_drop([this, report = outcome->value()] {
      stop_parts().check();
      close_in_turns(report);
    });
  });
}

void Worker::State::close_in_turns(const ShutdownReport& report) {
  if (phase == WorkerPhase::kStopped) return;
  if (links.session->close_some()) {
    environment.loop.post_or_drop([this, report] { close_in_turns(report); });
  } else {
    end(report);
  }
}

EachStep Worker::State::stop_parts() {
  EachStep each;
  layers.stop(each);
  each([this] { links.end_rendezvous(); });
  each([this] { view.stop(links.session ? std::optional(links.stats()) : std::nullopt); });
  return each;
}

void Worker::State::close(ShutdownReport report, bool is_last_attempt) {
  if (phase == WorkerPhase::kStopped) return;
  const EachStep each = stop_parts();
  if (!is_last_attempt) each.check();  // what failed is tried again: by end_by_failure
  end(std::move(report));
}

void Worker::State::end(ShutdownReport report) {
  phase = WorkerPhase::kStopped;
  start.drop();
  stop_future->complete(std::move(report));
}

// ---- failure of the loop ----

void Worker::on_loop_failure(const Error& error) noexcept {
  assert_on_loop(state_->environment.loop);
  for (bool is_done = false; !is_done;) {
    try {
      state_->end_by_failure(error);
      is_done = true;
    } catch (...) {
      // Again, by a simpler way.
    }
  }
}

void Worker::State::note_failure(const Error& error) {
  EachStep each;  // without memory for a word it ends all the same
  each([this, &error] {
    environment.log.write(LogLevel::kError, "the worker ends, as a task of its loop failed: " + error.message());
  });
}

// First an end by the rules: a start is abandoned, or LEAVE is said. A failure on that way, or of a shutdown that is
// leaving, cuts it short, which is tried some times; at last nothing is left but to tell those who wait.
void Worker::State::end_by_failure(const Error& error) {
  if (phase == WorkerPhase::kCreated || phase == WorkerPhase::kStopped) return;
  ShutdownReport report;
  report.clean = false;
  switch (failures++) {
    case 0:
      note_failure(error);
      if (phase == WorkerPhase::kStarting) {
        start.abandon(error);
        failures = 0;
        return;
      }
      phase = WorkerPhase::kStopping;
      if (!layers.group.leave_for(error)) return close(std::move(report));
      return close_soon(layers.group.shutdown(0));
    case 1:
    case 2:
    case 3:
    case 4:
      return close(std::move(report));
    default:
      EachStep each;
      each([this, &report] { close(report, true); });
      phase = WorkerPhase::kStopped;
      start.drop_outcome();
      stop_future->complete(std::move(report));
  }
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
