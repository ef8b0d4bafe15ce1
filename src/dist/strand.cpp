#include "dist/strand.h"

#include <utility>

#include "base/thread.h"

namespace distag {

void Strand::post(Task task) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(task));
    if (std::exchange(is_running_, true)) return;
  }
  executor_.post([self = shared_from_this()] { self->drain(); });
}

void Strand::drain() {
  for (;;) {
    std::vector<Task> tasks;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      tasks.swap(queue_);
      if (tasks.empty()) {
        is_running_ = false;
        return;
      }
    }
    for (Task& task : tasks) run_guarded(std::move(task));
  }
}

}  // namespace distag
