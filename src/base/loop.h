#pragma once

#include <cassert>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/task_queue.h"

namespace distag {

class Completion;

// The thread that owns all protocol state of a worker. Only its tasks touch state that lives "on the loop", which needs
// no lock. A task ends within 2 ms; longer work goes to the executor.
//
// A task that was taken is run, unless the loop never starts; a task or timer that is not run is destroyed. So a waiter
// for a task is told either by its run or, like the future of an Owed, by its end. A failure that a task throws,
// because memory ran out, is never swallowed: a task that knows its waiter fails that itself. Any other failure goes to
// the owner of the loop (FdLoop::set_on_failure), which cannot know what was left undone, and ends the worker with that
// error.
class Loop {
 public:
  using TimerId = uint64_t;

  virtual ~Loop() = default;

  // Runs the task on the loop, after those posted before it by the same thread. False once the loop is stopping: then
  // the task is destroyed before this returns. Any thread. Throws when there is no memory for the task, which is
  // destroyed then, too.
  [[nodiscard]] virtual bool post(Task task) = 0;

  // The same at a place that the caller has made before: needs no memory, and throws nothing.
  [[nodiscard]] virtual bool post(TaskPlace& place, Task task) noexcept = 0;

  // The same for a task without a waiter: it runs with the next one that is posted, and within about a
  // millisecond.
  [[nodiscard]] virtual bool post_soon(TaskPlace& place, Task task) noexcept { return post(place, std::move(task)); }
  [[nodiscard]] virtual bool post_soon(Task task) { return post(std::move(task)); }

  // For a task that means something only as long as the loop runs, or that says by its end that it was not run.
  void post_or_drop(Task task) { static_cast<void>(post(std::move(task))); }
  void post_or_drop(TaskPlace& place, Task task) noexcept { static_cast<void>(post(place, std::move(task))); }

  // Runs the task on the loop at `when` or soon after. On the loop only. Ids are never 0 and never repeat.
  virtual TimerId start_timer(Nanos when, Task task) = 0;

  // The same at a place that the caller has made before: needs no memory, and throws nothing. It cannot be cancelled.
  virtual void start_timer(TaskPlace& place, Nanos when, Task task) noexcept = 0;

  // The task will not run; an id that fired or was cancelled is fine. On the loop only.
  virtual void cancel_timer(TimerId id) = 0;

  // Whether a waiting thread can run the loop; if not, a Lead has no effect.
  virtual bool has_leaders() const { return false; }
  // Makes a thread run at once the tasks that the calling thread posted under a Lead. Any thread.
  virtual void wake() noexcept {}

  // Waits for the completion, which the loop is to bring, on a thread that may wait: a host thread or a pool thread.
  // True once it is done, false after `timeout` (negative: none). The loop may run on the calling thread meanwhile.
  virtual bool lead(Completion& completion, Nanos timeout);
  // Any thread.
  virtual const Clock& clock() const = 0;
  virtual bool is_current() const = 0;

  Nanos now() const { return clock().now(); }
};

// Comes first in each method that lives on the loop. Does nothing in builds without asserts.
inline void assert_on_loop([[maybe_unused]] const Loop& loop) { assert(loop.is_current()); }

// Runs the task now when on the loop, else posts it. False when it was destroyed unrun.
[[nodiscard]] inline bool run_on(Loop& loop, Task task) {
  if (!loop.is_current()) return loop.post(std::move(task));
  task();
  return true;
}

}  // namespace distag
