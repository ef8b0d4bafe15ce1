#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/task.h"

namespace distag {

// The thread that owns all protocol state of a worker. State that lives "on the loop" is touched by its tasks only and
// needs no lock. A task ends within 2 ms; longer work goes to the executor.
class Loop {
 public:
  using TimerId = uint64_t;

  virtual ~Loop() = default;

  // Runs the task on the loop, after those posted before it by the same thread. Any thread. Tasks posted after the loop
  // was stopped are destroyed unrun.
  virtual void post(Task task) = 0;

  // Runs the task on the loop at `when` or soon after. On the loop only. Ids are never 0 and never repeat.
  virtual TimerId start_timer(Nanos when, Task task) = 0;

  // The task will not run; an id that fired or was cancelled is fine. On the loop only.
  virtual void cancel_timer(TimerId id) = 0;

  // Any thread.
  virtual const Clock& clock() const = 0;
  virtual bool is_current() const = 0;

  Nanos now() const { return clock().now(); }
};

// Runs the task now when on the loop, else posts it.
inline void run_on(Loop& loop, Task task) {
  if (loop.is_current()) {
    task();
  } else {
    loop.post(std::move(task));
  }
}

}  // namespace distag
