#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/task.h"

namespace distag {

// Runs one task at a time, in order, on an executor that runs many. The task it has posted there shares it; if the
// executor drops that task, or does not take it, the queue is destroyed unrun.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  explicit Strand(Executor& executor) : executor_(executor) {}

  // As Executor::post. Any thread.
  [[nodiscard]] bool post(Task task);
  // For a task that says by its end that it was not run, or need not be.
  void post_or_drop(Task task) { static_cast<void>(post(std::move(task))); }

 private:
  class Turn;
  void drain();
  void drop() noexcept;

  Executor& executor_;
  Mutex mutex_;
  std::vector<Task> queue_ GUARDED_BY(mutex_);
  bool is_running_ GUARDED_BY(mutex_) = false;
};

}  // namespace distag
