#include "base/flat_run.h"

#include <utility>
#include <vector>

namespace distag {
namespace {

thread_local std::vector<Task>* t_following = nullptr;

// Collects the tasks that come up while it lives.
class Following {
 public:
  Following() { t_following = &tasks_; }
  ~Following() { t_following = nullptr; }
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

  Task next() {
    if (begun_ == tasks_.size()) return nullptr;
    return std::move(tasks_[begun_++]);
  }

 private:
  std::vector<Task> tasks_;
  size_t begun_ = 0;
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
