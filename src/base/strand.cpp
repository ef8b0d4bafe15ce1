#include "base/strand.h"

#include <utility>

#include "base/mutex.h"
#include "base/thread.h"

namespace distag {

// The task that the executor has. If it is dropped unrun, it drops the queue.
class Strand::Turn {
 public:
  explicit Turn(std::shared_ptr<Strand> strand) : strand_(std::move(strand)) {}
  Turn(Turn&&) noexcept = default;
  Turn& operator=(Turn&&) = delete;
  ~Turn() {
    if (strand_ != nullptr) strand_->drop();
  }

  void operator()() { std::exchange(strand_, nullptr)->drain(); }

 private:
  std::shared_ptr<Strand> strand_;
};

bool Strand::post(Task task) {
  {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(task));
    if (std::exchange(is_running_, true)) return true;
  }
  return executor_.post(Turn(shared_from_this()));
}

void Strand::drop() noexcept {
  std::vector<Task> left;  // destroyed after the lock is gone
  MutexLock lock(mutex_);
  is_running_ = false;
  left.swap(queue_);
}

void Strand::drain() {
  for (;;) {
    std::vector<Task> tasks;
    {
      MutexLock lock(mutex_);
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
