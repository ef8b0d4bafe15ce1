#include "capi/worker.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/each_step.h"
#include "base/host_code.h"
#include "base/mutex.h"
#include "base/parker.h"
#include "base/thread.h"
#include "capi/taken_calls.h"

using namespace distag;
using namespace distag::capi;

namespace {

// How long reading the counters of the streams may take; their loop answers within 2 ms when it is well.
constexpr Nanos kStatsPatience = 50 * kMillisecond;

constexpr Nanos kReportPatience = kSecond;

// How much later than its deadline a loop that is well, on a busy machine, ends a shutdown.
constexpr Nanos kShutdownPatience = 5 * kSecond;

// The last destroy functions are waited for at least this long.
constexpr Nanos kSettlePatience = 500 * kMillisecond;

constexpr const char* kReleaseThread = "distag-release";

Value to_value(const ShutdownReport& report) {
  Value::List missing;
  for (const std::string& name : report.missing) missing.push_back(Value::text(name));
  Value::Map entries;
  entries.emplace_back("clean", Value(report.clean));
  Value::List leaked;
  for (const std::string& line : report.leaked_rrefs) leaked.push_back(Value::text(line));
  entries.emplace_back("leaked_rrefs", Value::list(std::move(leaked)));
  entries.emplace_back("missing", Value::list(std::move(missing)));
  entries.emplace_back("open_calls", Value(report.open_calls));
  return Value::map(std::move(entries));
}

Error still_running(const std::vector<std::string>& functions) {
  std::string names;
  for (const std::string& name : functions) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name);
  return Error(Status::kDeadline,
               fmt::format("shutdown: time is up while functions still run: {}; the worker has left its group, shut it "
                           "down again to wait for them",
                           names.empty() ? "of callbacks" : names));
}

}  // namespace

distag_worker::distag_worker(ProductionOptions options, HostData data, distag_member_callback on_member)
    : Handle(Kind::kWorker),
      data_(std::move(data)),
      hooks_(options.hooks),
      link_(std::make_shared<WorkerLink>(this)),
      taken_calls_(std::make_unique<TakenCalls>()) {
  // Threads of the worker are told from others by this.
  options.hooks.on_start = [this](const char* thread_name) {
    set_thread_owner(this);
    if (hooks_.on_start) hooks_.on_start(thread_name);
  };
  if (options.on_log) {
    options.on_log = [this, sink = std::move(options.on_log)](LogLevel level, const std::string& text) {
      const CallbackScope scope(this);
      sink(level, text);
    };
  }
  if (on_member != nullptr) {
    lent();  // made before a callback depends on it
    options.on_member = [this, on_member](const MemberRecord& record) {
      const CallbackScope scope(this);
      const distag_member member = to_member(record);
      distag_worker* const worker = lent();
      call_host([&] { on_member(data_.get(), worker, &member); });
    };
  }
  production_ = std::make_unique<ProductionWorker>(std::move(options));
  core().rrefs().set_host(link_);
  // A shutdown that was asked for marks it in its turn.
  core().when_stopped()->on_done([this] {
    if (shutdowns_ == 0) events_.mark_left();
  });
}

distag_worker::~distag_worker() { link_->cut(); }

distag_worker* distag_worker::lent() {
  // The constructor makes it, where that matters, before there is a reserve.
  const ReserveScope scope(production_ ? reserve() : current_reserve());
  return lent_.get([this] { return new StandIn(*this); })->as<distag_worker>();
}

bool distag_worker::release_by_host() noexcept {
  if (is_of_parent()) return Handle::release_by_host();
  const auto held = Ref<distag_worker>::share(this);
  const Dropped dropped = drop_host_reference();
  if (dropped == Dropped::kLast && is_down()) taken_calls_->end_all();
  if (dropped == Dropped::kLast && !is_down()) {
    retain();
    if (!was_started_) {
      shut_down_for_good(false);
    } else {
      try {
        start_thread(kReleaseThread, {}, [this] { shut_down_for_good(true); }).detach();
      } catch (...) {
        // No thread is left to join the others on: they run until the process ends.
      }
    }
  }
  return dropped != Dropped::kNone;
}

// Takes over a reference. On a thread of its own (`is_thread`), whose hooks frame all but the end of their user_data.
void distag_worker::shut_down_for_good(bool is_thread) noexcept {
  try {
    if (is_thread && hooks_.on_start) hooks_.on_start(kReleaseThread);
    const ReserveScope may_draw(reserve());  // the host lets go of it: there is nobody to answer
    wait(*begin_leaving(0), kForever);
    production_->finish(kForever);
    settle(kForever, is_thread && hooks_.on_stop ? [this] { hooks_.on_stop(kReleaseThread); } : Task());
  } catch (...) {
    return;  // threads may still run: they keep their memory
  }
  taken_calls_->end_all();
  release();
}

HostExecutor& distag_worker::need_host() {
  if (host() != nullptr) return *host();
  refuse(Status::kInvalidState, "the worker runs its callbacks on its pool; make it with DISTAG_EXECUTOR_HOST");
}

void distag_worker::check_up() const {
  if (is_down()) refuse(Status::kInvalidState, "the worker is shut down");
}

void distag_worker::register_function(std::shared_ptr<HostFunction> function, Function run) {
  check_up();
  {
    MutexLock lock(mutex_);
    functions_.push_back(function);
  }
  try {
    core().rpc().register_function(function->name, std::move(run));
  } catch (...) {
    MutexLock lock(mutex_);
    std::erase(functions_, function);
    throw;
  }
}

void distag_worker::unregister_function(const std::string& name, Nanos timeout) {
  check_up();
  check_can_wait();
  std::shared_ptr<HostFunction> function;
  {
    MutexLock lock(mutex_);
    const auto found = std::find_if(functions_.begin(), functions_.end(),
                                    [&name](const auto& registered) { return registered->name == name; });
    if (found == functions_.end()) refuse(Status::kNotFound, "there is no function \"{}\"", name);
    if (runs_callback_of(found->get())) {
      refuse(Status::kInvalidState, "\"{}\" is called from within itself: it cannot end before", name);
    }
    function = std::move(*found);
    functions_.erase(found);
  }
  core().rpc().unregister_function(name);
  auto ended = Future<Unit>::make();
  function->data.on_destroyed([ended] { ended->complete(Unit{}); });
  function.reset();
  if (!wait(*ended, timeout)) {
    refuse(Status::kDeadline, "\"{}\" is withdrawn, but still runs after {} ms", name, timeout / kMillisecond);
  }
}

std::shared_ptr<Future<Value>> distag_worker::start(Nanos timeout) {
  check_up();
  was_started_ = true;
  return production_->start(timeout);
}

Value distag_worker::shutdown(Nanos timeout) {
  if (runs_callback_of(this)) {
    refuse(Status::kInvalidState, "called from a callback of this worker: use distag_worker_shutdown_async");
  }
  check_can_wait();
  const ReserveScope reserve_scope(reserve());
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  // Code that runs on this thread while it waits is a callback, for which a shutdown within this one could not end.
  const CallbackScope callback_scope(this);
  // From now on the caller is the thread that polls.
  if (host() != nullptr) host()->poll(0, 0);
  if (!is_down()) {
    const auto outcome = begin_leaving(timeout);
    if (!wait(*outcome, timeout == kForever ? kForever : deadline_after(timeout, kShutdownPatience))) {
      refuse(Status::kDeadline, "the worker did not leave its group in time: its loop does not answer");
    }
    keep_report(outcome->value());
    take_down(time_left(deadline));
  }
  MutexLock lock(mutex_);
  return report_;
}

// Once it has left, `tell` is called, then those who wait for events are told: also when there is no memory for the
// first. A shutdown that cannot be begun leaves that to the others, or to the end of the worker.
std::shared_ptr<distag_worker::Outcome> distag_worker::begin_leaving(Nanos timeout,
                                                                     UniqueFunction<void(const Outcome&)> tell) {
  ++shutdowns_;
  try {
    auto outcome = production_->begin_shutdown(timeout);
    outcome->on_done([this, report = outcome.get(), tell = std::move(tell)]() mutable {
      EachStep each;
      if (tell) each([&tell, report] { tell(*report); });
      each([this] { events_.mark_left(); });
      each.check();
    });
    return outcome;
  } catch (...) {
    if (--shutdowns_ == 0 && core().when_stopped()->is_done()) events_.mark_left();
    throw;
  }
}

void distag_worker::keep_report(const ShutdownReport& report) {
  MutexLock lock(mutex_);
  if (report_.is_null()) report_ = to_value(report);
}

// The worker has left: its threads end, then what the host gave.
void distag_worker::take_down(Nanos timeout) {
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  const bool has_ended = production_->finish(timeout);
  const Nanos left = time_left(deadline);
  if (!has_ended || !settle(left < 0 ? left : std::max(left, kSettlePatience))) {
    throw still_running(core().rpc().running_functions());
  }
}

std::shared_ptr<Future<Value>> distag_worker::shutdown_async(Nanos timeout) {
  auto future = Future<Value>::make();
  future->claim();  // a worker that leaves cannot be called back
  begin_leaving(timeout, [this, future](const Outcome& outcome) {
    const Owed owed(future);
    tell_of_shutdown(outcome, *future);
  });
  return future;
}

void distag_worker::tell_of_shutdown(const Future<ShutdownReport>& outcome, Future<Value>& future) {
  if (outcome.error() != nullptr) {
    future.fail(*outcome.error());
    return;
  }
  const std::vector<std::string> running = core().rpc().running_functions();
  if (!running.empty()) {
    future.fail(still_running(running));
    return;
  }
  keep_report(outcome.value());
  Value value;
  {
    MutexLock lock(mutex_);
    value = report_;
  }
  future.complete(std::move(value));
}

void distag_worker::join(Nanos timeout) {
  if (!is_down() && !runs_callback_of(this)) take_down(timeout);
}

// The threads are gone: ends all that the host gave, once. A second caller waits for the first: false when that one is
// not done in time.
bool distag_worker::settle(Nanos timeout, Task before_last) {
  std::vector<std::shared_ptr<HostFunction>> functions;
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_settling_, true)) {
      lock.unlock();
      return wait(*settled_, timeout);
    }
    functions.swap(functions_);
  }
  const CallbackScope scope(this);
  events_.clear();
  for (const auto& function : functions) function->data.run_destroy();
  if (before_last) before_last();
  data_.run_destroy();
  settled_->complete(Unit{});
  return true;
}

const char* distag_worker::name() {
  const std::string now = core().name();
  MutexLock lock(mutex_);
  if (now.empty()) return nullptr;
  if (names_.empty() || names_.back() != now) names_.push_back(now);
  return names_.back().c_str();
}

WorkerStats distag_worker::stats() {
  WorkerStats stats = core().stats();
  if (!core().is_started() || is_down()) return stats;
  // Not a wait of base: that might run callbacks, and this function is not one that blocks.
  const auto fresh = core().fetch_session_stats();
  if (park_until_done(*fresh, kStatsPatience) && fresh->error() == nullptr) stats.session = fresh->value();
  return stats;
}

namespace {

// Not a wait of base, as above; on the loop itself it is refused.
template <typename Snapshot>
std::string write(const std::shared_ptr<Future<Snapshot>>& snapshot) {
  check_can_wait();
  if (!park_until_done(*snapshot, kReportPatience)) {
    refuse(Status::kDeadline, "the worker is busy: its loop did not answer within {} ms",
           kReportPatience / kMillisecond);
  }
  // A context that is not known fails otherwise.
  const Error* error = snapshot->error();
  if (error != nullptr && error->status() == Status::kCancelled) {
    refuse(Status::kInvalidState, "the worker is shut down");
  }
  return write_report(snapshot->value());
}

}  // namespace

std::string distag_worker::report() {
  if (!core().is_started() || is_down()) return write_report(core().snapshot_at_rest());
  return write(core().fetch_snapshot());
}

std::string distag_worker::report(Context& context) {
  check_up();
  return write(core().fetch_snapshot(context.global_id()));
}

namespace distag::capi {

Ref<distag_worker> WorkerLink::get() {
  MutexLock lock(mutex_);
  if (worker_ == nullptr || !worker_->try_retain()) return {};
  return Ref<distag_worker>::adopt(worker_);
}

void WorkerLink::cut() {
  MutexLock lock(mutex_);
  worker_ = nullptr;
}

}  // namespace distag::capi
