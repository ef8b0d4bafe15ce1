#pragma once

#include <cstddef>
#include <utility>

#include "base/clock.h"
#include "base/future.h"
#include "base/task.h"

namespace distag {

// Runs work that may take long or is host code: on a pool of threads, or in the host's own poll. Tasks may run at the
// same time and in any order, unless the executor says otherwise.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs the task soon. Any thread; never blocks. False once the executor is stopped: then the task is destroyed before
  // this returns. Tasks left at the stop are destroyed unrun as well. Throws when there is no memory or no thread for
  // the task, which is destroyed then, too.
  [[nodiscard]] virtual bool post(Task task) = 0;

  // For a task that means something only as long as the executor runs, or that says by its end that it was not run.
  void post_or_drop(Task task) { static_cast<void>(post(std::move(task))); }

  // Tasks posted and not begun. Any thread.
  virtual size_t waiting() const = 0;
};

// How a kind of thread waits: a pool thread gives its place away, a loop thread refuses, the simulator runs its
// scheduler. The owner of a thread installs it there for as long as the thread runs.
class WaitPolicy {
 public:
  virtual ~WaitPolicy() = default;

  // Throws what a wait begun now would be refused with: INVALID_STATE on a loop, OVERLOADED above the cap of a pool.
  virtual void check() = 0;

  // The thread will not come back from host code, and is about to be parked for good. Never fails.
  virtual void give_up_thread() noexcept {}

  // True once the completion is done, false after `timeout` (negative: none).
  virtual bool wait(Completion& completion, Nanos timeout) = 0;
};

// Installs `policy` on the calling thread and returns the one it replaces. nullptr: a plain thread of the host.
WaitPolicy* exchange_wait_policy(WaitPolicy* policy);

// Tells the policy of the calling thread, if there is one, that the thread will not come back.
void give_up_this_thread() noexcept;

// Waits on the calling thread: by its policy, running the pumps of host executors that this thread polls, or plainly.
// Same results as WaitPolicy::wait.
void check_can_wait();
bool wait(Completion& completion, Nanos timeout);
// The same, but no pump runs meanwhile.
bool wait_and_run_nothing(Completion& completion, Nanos timeout);

}  // namespace distag
