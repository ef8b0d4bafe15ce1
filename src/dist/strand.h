#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/executor.h"
#include "base/task.h"

namespace distag {

// One task at a time, in order, on an executor that runs many. Shared with the task it has posted there.
class Strand : public std::enable_shared_from_this<Strand> {
 public:
  explicit Strand(Executor& executor) : executor_(executor) {}

  void post(Task task);  // any thread

 private:
  void drain();

  Executor& executor_;
  std::mutex mutex_;
  std::vector<Task> queue_;
  bool is_running_ = false;
};

}  // namespace distag
