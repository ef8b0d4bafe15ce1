#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/host_callback.h"
#include "base/mutex.h"
#include "worker/event_queue.h"
#include "worker/threaded_worker.h"
#include "worker/trace_writer.h"

namespace distag {

// A function that the host registered. Its data ends with the worker, when registering fails, or once it is withdrawn
// and no call needs it any more.
struct HostFunction {
  std::string name;
  HostData data;
};

// A worker with all that the host gave it, and the order of its end: it leaves its group, its functions end, then its
// threads, then the host's data. The owner of its callbacks is its address. Thread-safe. Ends on no thread of its own.
class HostedWorker {
 public:
  // `data` is that of the callbacks in the options.
  HostedWorker(ThreadedOptions options, HostData data);

  Worker& core() { return worker_.worker(); }
  Executor& functions() { return worker_.functions(); }
  HostExecutor* host() { return worker_.host(); }  // nullptr with the pool executor
  Reserve* reserve() { return worker_.reserve(); }
  EventQueue& events() { return events_; }
  TraceWriter& tracer() { return tracer_; }

  // `run` holds the function.
  void register_function(std::shared_ptr<HostFunction> function, Function run, std::vector<std::string> callers);
  enum class Withdrawal { kDone, kUnknown, kFromWithinItself, kStillRuns };
  // Waits until no invocation of it runs and its data has ended.
  Withdrawal unregister_function(const std::string& name, Nanos timeout);

  std::shared_ptr<Future<Value>> start(Nanos timeout);
  ThreadedWorker& threaded() { return worker_; }

  // Whether all has ended.
  bool is_down() const { return settled_->is_done(); }
  // Waits until it is down; the report, the same for all who ask. Empty when the loop does not answer. Throws DEADLINE
  // naming the functions that still run. Not in a callback.
  std::optional<Value> shutdown(Nanos timeout);
  std::shared_ptr<Future<Value>> shutdown_async(Nanos timeout);
  // After an asynchronous shutdown: ends the rest, unless the caller is in a callback. Throws DEADLINE likewise.
  void join(Nanos timeout);
  // The host has let go of it. Runs `then` once it is down, here or on a thread of its own: never, when threads of the
  // worker cannot be joined. `then` may free the worker.
  void end_for_good(Task then) noexcept;

  // Valid until the worker ends; nullptr as long as it depends on the rank.
  const char* name();
  // The counters of the loop are those of now; while the loop is busy, the last ones that were read.
  WorkerStats stats();

 private:
  ThreadedOptions mark_callbacks(ThreadedOptions options);
  TraceWriter::Environment make_trace_environment();
  void trace_if_wanted();
  using Outcome = Future<ShutdownReport>;
  std::shared_ptr<Outcome> begin_leaving(Nanos timeout, UniqueFunction<void(const Outcome&)> tell = {});
  void tell_of_shutdown(const Outcome& outcome, Future<Value>& future);
  Value keep_report(const ShutdownReport& report);
  void take_down(Nanos timeout);
  bool settle(Nanos timeout, Task before_last = {});
  bool take_down_for_good(bool is_thread) noexcept;

  HostData data_;  // of the callbacks in the options
  const ThreadHooks hooks_;
  ThreadedWorker worker_;
  TraceWriter tracer_;
  EventQueue events_;  // ends before what its calls are of
  std::atomic<bool> was_started_{false};
  std::atomic<bool> is_traced_{false};  // for the environment
  std::atomic<int> shutdowns_{0};       // that will mark the end of the events

  Mutex mutex_;
  std::vector<std::shared_ptr<HostFunction>> functions_ GUARDED_BY(mutex_);
  std::list<std::string> names_ GUARDED_BY(mutex_);  // those ever given; the last one counts
  Value report_ GUARDED_BY(mutex_);
  LoopStats told_ GUARDED_BY(mutex_);
  bool is_settling_ GUARDED_BY(mutex_) = false;
  const std::shared_ptr<Future<Unit>> settled_ = Future<Unit>::make();
};

}  // namespace distag
