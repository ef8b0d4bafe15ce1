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

// A function that the host registered. Its data ends with the worker, when registering fails, or once the function is
// withdrawn and no call needs it any more.
struct HostFunction {
  std::string name;
  HostData data;
};

// A worker with all that the host gave it. It ends in this order: it leaves its group, then its functions, threads and
// host data end. Its address is the owner of its callbacks. Thread-safe. Not destroyed on its own threads.
class HostedWorker {
 public:
  // `data`: of the callbacks in the options.
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
  // Waits until no invocation of the function runs and its data has ended.
  Withdrawal unregister_function(const std::string& name, Nanos timeout);

  std::shared_ptr<Future<Value>> start(Nanos timeout);
  ThreadedWorker& threaded() { return worker_; }

  // Whether all has ended.
  bool is_down() const { return settled_->is_done(); }
  // Waits until the worker is down; gives the report, the same to all callers. Empty when the loop does not answer.
  // Throws DEADLINE naming the functions that still run. Not in a callback.
  std::optional<Value> shutdown(Nanos timeout);
  std::shared_ptr<Future<Value>> shutdown_async(Nanos timeout);
  // After an asynchronous shutdown: ends the rest, unless the caller is in a callback. Throws DEADLINE as above.
  void join(Nanos timeout);
  // The host has released the worker. Runs `then` once the worker is down, on a new thread, or on this one if there is
  // nothing to wait for or no thread can be made: never, if threads of the worker cannot be joined. `then` may free the
  // worker.
  void end_for_good(Task then) noexcept;

  // Valid until the worker ends; nullptr as long as the name depends on the rank.
  const char* name();
  // The loop's counters are read now; while the loop is busy, they are the last ones that were read.
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
  void take_down_for_good(bool is_thread) noexcept;

  HostData data_;  // of the callbacks in the options
  const ThreadHooks hooks_;
  ThreadedWorker worker_;
  TraceWriter tracer_;
  EventQueue events_;  // ends before the objects that its calls refer to
  Task at_end_;        // once the host has released the worker
  std::atomic<bool> was_started_{false};
  std::atomic<bool> is_traced_{false};  // for the environment
  std::atomic<int> shutdowns_{0};       // those that will mark the end of the events

  Mutex mutex_;
  std::vector<std::shared_ptr<HostFunction>> functions_ GUARDED_BY(mutex_);
  std::list<std::string> names_ GUARDED_BY(mutex_);  // all names so far; the last one counts
  Value report_ GUARDED_BY(mutex_);
  LoopStats told_ GUARDED_BY(mutex_);
  bool is_settling_ GUARDED_BY(mutex_) = false;
  const std::shared_ptr<Future<Unit>> settled_ = Future<Unit>::make();
};

}  // namespace distag
