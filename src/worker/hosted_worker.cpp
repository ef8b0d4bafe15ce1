#include "worker/hosted_worker.h"

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/each_step.h"
#include "base/parker.h"
#include "base/thread.h"
#include "group/shared.h"

namespace distag {

namespace {

// The time limit for reading the counters of the streams; a loop that is not busy answers within 2 ms.
constexpr Nanos kStatsPatience = 50 * kMillisecond;

// How much later than its deadline a working loop, on a busy machine, ends a shutdown.
constexpr Nanos kShutdownPatience = 5 * kSecond;

// The least time limit for the last destroy functions.
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
                           names.empty() ? "callbacks, sources of loaders or gradients of the host" : names));
}

}  // namespace

HostedWorker::HostedWorker(ThreadedOptions options, HostData data)
    : data_(std::move(data)),
      hooks_(options.hooks),
      worker_(mark_callbacks(std::move(options))),
      tracer_(make_trace_environment()) {
  // With a shutdown by the host, begin_leaving() marks the queue in its turn.
  core().when_stopped()->on_done([this] {
    if (shutdowns_ == 0) events_.mark_left();
  });
}

// The owner tells threads and callbacks of this worker from others.
ThreadedOptions HostedWorker::mark_callbacks(ThreadedOptions options) {
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
  if (options.on_member) {
    options.on_member = [this, tell = std::move(options.on_member)](const MemberRecord& record) {
      const CallbackScope scope(this);
      tell(record);
    };
  }
  return options;
}

TraceWriter::Environment HostedWorker::make_trace_environment() {
  return {core().group().shared()->trace,
          core().log(),
          [this] { return core().name(); },
          [this] { return core().rank(); },
          {[this](const char* thread_name) {
             set_thread_owner(this);
             if (hooks_.on_start) hooks_.on_start(thread_name);
           },
           hooks_.on_stop}};
}

// The worker goes on without a trace if that cannot be begun.
void HostedWorker::trace_if_wanted() {
  const char* const folder = std::getenv("DISTAG_TRACE");
  if (folder == nullptr || *folder == '\0' || is_traced_.exchange(true)) return;
  try {
    tracer_.start({.folder = folder}, false);
  } catch (...) {
    core().log().write(LogLevel::kWarning, "DISTAG_TRACE: " + current_error().message());
  }
}

void HostedWorker::register_function(std::shared_ptr<HostFunction> function, Function run,
                                     std::vector<std::string> callers) {
  {
    MutexLock lock(mutex_);
    functions_.push_back(function);
  }
  try {
    core().rpc().register_function(function->name, std::move(run), std::move(callers));
  } catch (...) {
    MutexLock lock(mutex_);
    std::erase(functions_, function);
    throw;
  }
}

HostedWorker::Withdrawal HostedWorker::unregister_function(const std::string& name, Nanos timeout) {
  std::shared_ptr<HostFunction> function;
  {
    MutexLock lock(mutex_);
    const auto found = std::find_if(functions_.begin(), functions_.end(),
                                    [&name](const auto& registered) { return registered->name == name; });
    if (found == functions_.end()) return Withdrawal::kUnknown;
    if (runs_callback_of(found->get())) return Withdrawal::kFromWithinItself;
    function = std::move(*found);
    functions_.erase(found);
  }
  core().rpc().unregister_function(name);
  auto ended = Future<Unit>::make();
  function->data.on_destroyed([ended] { ended->complete(Unit{}); });
  function.reset();
  return wait(*ended, timeout) ? Withdrawal::kDone : Withdrawal::kStillRuns;
}

std::shared_ptr<Future<Value>> HostedWorker::start(Nanos timeout) {
  was_started_ = true;
  trace_if_wanted();
  return worker_.start(timeout);
}

std::optional<Value> HostedWorker::shutdown(Nanos timeout) {
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  // Code that runs on this thread during the wait is a callback: a shutdown within this one could not end.
  const CallbackScope callback_scope(this);
  // From now on the calling thread is the one that polls.
  if (host() != nullptr) host()->poll(0, 0);
  if (!is_down()) {
    const auto outcome = begin_leaving(timeout);
    if (!wait(*outcome, timeout == kForever ? kForever : deadline_after(timeout, kShutdownPatience))) return {};
    keep_report(outcome->value());
    take_down(time_left(deadline));
  }
  MutexLock lock(mutex_);
  return report_;
}

// After the worker has left, calls `tell`, then wakes waiters for events: also if there is no memory for `tell`. If the
// shutdown cannot be begun, other shutdowns do this, or the end of the worker.
std::shared_ptr<HostedWorker::Outcome> HostedWorker::begin_leaving(Nanos timeout,
                                                                   UniqueFunction<void(const Outcome&)> tell) {
  ++shutdowns_;
  try {
    auto outcome = worker_.begin_shutdown(timeout);
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

// The first report is given to all callers.
Value HostedWorker::keep_report(const ShutdownReport& report) {
  MutexLock lock(mutex_);
  if (report_.is_null()) report_ = to_value(report);
  return report_;
}

// The worker has left: its trace ends, while the log can still report losses; then its threads; then the host's data.
void HostedWorker::take_down(Nanos timeout) {
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  const auto patience = [deadline] {
    const Nanos left = time_left(deadline);
    return left < 0 ? left : std::max(left, kSettlePatience);
  };
  const bool is_written = tracer_.stop_for_good(patience());
  const bool has_ended = worker_.finish(time_left(deadline));
  if (has_ended && !is_written) {
    fail(Status::kDeadline, "shutdown: time is up before the trace is on the disk; shut it down again to wait for it");
  }
  if (!has_ended || !settle(patience())) throw still_running(core().rpc().running_functions());
}

std::shared_ptr<Future<Value>> HostedWorker::shutdown_async(Nanos timeout) {
  auto future = Future<Value>::make();
  future->claim();  // a worker that leaves cannot be called back
  begin_leaving(timeout, [this, future](const Outcome& outcome) {
    const Owed owed(future);
    tell_of_shutdown(outcome, *future);
  });
  return future;
}

void HostedWorker::tell_of_shutdown(const Outcome& outcome, Future<Value>& future) {
  if (outcome.error() != nullptr) {
    future.fail(*outcome.error());
    return;
  }
  const std::vector<std::string> running = core().rpc().running_functions();
  if (!running.empty()) {
    future.fail(still_running(running));
    return;
  }
  future.complete(keep_report(outcome.value()));
}

void HostedWorker::join(Nanos timeout) {
  if (!is_down() && !runs_callback_of(this)) take_down(timeout);
}

// The threads are gone: ends all data that the host gave, once. A second caller waits for the first: false if that is
// not done in time.
bool HostedWorker::settle(Nanos timeout, Task before_last) {
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

void HostedWorker::end_for_good(Task then) noexcept {
  if (is_down()) return then();
  at_end_ = std::move(then);
  if (!was_started_) return take_down_for_good(false);
  try {
    start_thread(kReleaseThread, {}, [this] { take_down_for_good(true); }).detach();
  } catch (...) {
    // No thread can be made that joins the others: this one does, unless they may wait for it. Then they run until the
    // process ends.
    EachStep each;
    bool may_wait = false;
    each([this, &may_wait] { may_wait = !runs_callback_of(this) && core().rpc().running_functions().empty(); });
    if (may_wait) return take_down_for_good(false);
    each([this] { begin_leaving(0); });
  }
}

// Threads that still run keep their memory. With a thread of its own (`is_thread`), the hooks frame all but the end of
// their user_data.
void HostedWorker::take_down_for_good(bool is_thread) noexcept {
  bool is_settled = false;
  try {
    if (is_thread && hooks_.on_start) hooks_.on_start(kReleaseThread);
    const ReserveScope may_draw(reserve());  // the host has released the worker: no caller waits for an answer
    wait(*begin_leaving(0), kForever);
    tracer_.stop_for_good(kForever);
    Task before_last = is_thread && hooks_.on_stop ? [this] { hooks_.on_stop(kReleaseThread); } : Task();
    is_settled = worker_.finish(kForever) && settle(kForever, std::move(before_last));
  } catch (...) {
    // There is no memory even for this.
  }
  Task then = std::move(at_end_);
  if (is_settled) then();
}

const char* HostedWorker::name() {
  const std::string now = core().name();
  MutexLock lock(mutex_);
  if (now.empty()) return nullptr;
  if (names_.empty() || names_.back() != now) names_.push_back(now);
  return names_.back().c_str();
}

WorkerStats HostedWorker::stats() {
  WorkerStats stats = core().stats();
  if (!core().is_started() || is_down()) return stats;
  // Not base's wait(): that might run callbacks, and this function must not block for long.
  const auto fresh = core().fetch_loop_stats();
  const bool has_answered = park_until_done(*fresh, kStatsPatience);
  if (has_answered && fresh->error() != nullptr) return stats;  // the loop has ended: its last counters are known
  MutexLock lock(mutex_);
  if (has_answered) told_ = fresh->value();
  stats.session = told_.session;
  stats.requests = told_.requests;
  return stats;
}

}  // namespace distag
