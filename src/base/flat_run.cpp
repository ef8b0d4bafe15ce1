#include "base/flat_run.h"

#include <deque>
#include <utility>

namespace distag {
namespace {

thread_local std::deque<Task>* t_following = nullptr;

// What comes up meanwhile, for as long as it lives.
class Following {
 public:
  Following() { t_following = &tasks_; }
  ~Following() { t_following = nullptr; }
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

  Task next() {
    if (tasks_.empty()) return nullptr;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }

 private:
  std::deque<Task> tasks_;
};

}  // namespace

void run_flat(Task task) {
  if (t_following != nullptr) {
    t_following->push_back(std::move(task));
    return;
  }
  Following following;
  for (; task; task = following.next()) task();
}

}  // namespace distag
