#pragma once

#include <utility>

#include "base/loop.h"
#include "base/mutex.h"

namespace distag {

// A way to the loop for objects that may outlive it: answers and futures that the host keeps. Any thread.
class LoopGate {
 public:
  explicit LoopGate(Loop& loop) : loop_(loop) {}

  // Runs the task on the loop, at once when called there. False once closed or the loop is stopping: the task was
  // destroyed. A caller that ignores the result has settled what it owes by then, or leaves that to an Owed. The lock
  // is held while the loop takes the task, since the loop may go as soon as the gate is closed.
  bool run(Task task) {
    {
      MutexLock lock(mutex_);
      if (closed_) return false;
      if (!loop_.is_current()) {
        return loop_.post(std::move(task));
      }
    }
    task();
    return true;
  }

  // The same at a place that the caller has made before: throws only what the task throws here.
  bool run(TaskPlace& place, Task task) {
    {
      MutexLock lock(mutex_);
      if (closed_) return false;
      if (!loop_.is_current()) return loop_.post(place, std::move(task));
    }
    task();
    return true;
  }

  // The same for a task without a waiter (see Loop::post_soon).
  bool run_soon(Task task) {
    {
      MutexLock lock(mutex_);
      if (closed_) return false;
      if (!loop_.is_current()) return loop_.post_soon(std::move(task));
    }
    task();
    return true;
  }
  bool run_soon(TaskPlace& place, Task task) {
    {
      MutexLock lock(mutex_);
      if (closed_) return false;
      if (!loop_.is_current()) return loop_.post_soon(place, std::move(task));
    }
    task();
    return true;
  }

  // The same, but always behind what was posted before, even when called on the loop.
  bool post(TaskPlace& place, Task task) {
    MutexLock lock(mutex_);
    return !closed_ && loop_.post(place, std::move(task));
  }

  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }

 private:
  Loop& loop_;
  Mutex mutex_;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace distag
