#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/future.h"
#include "base/mutex.h"

namespace distag {

// The functions that run now. A shutdown closes it, and no function begins after that. Any thread.
class RunningFunctions {
 public:
  // A run of a function; the name must live as long as the run.
  struct Run {
    const std::string* name = nullptr;
    size_t place = 0;
  };

  // Returns false when it is closed.
  bool begin(Run& run, const std::string& name) {
    MutexLock lock(mutex_);
    if (closed_) return false;
    run.name = &name;
    run.place = runs_.size();
    runs_.push_back(&run);
    return true;
  }

  void end(Run& run) {
    std::vector<std::shared_ptr<Future<Unit>>> reached;
    {
      MutexLock lock(mutex_);
      runs_[run.place] = runs_.back();
      runs_[run.place]->place = run.place;
      runs_.pop_back();
      if (runs_.empty()) reached.swap(waiting_);
    }
    for (auto& future : reached) future->complete(Unit{});
  }

  // Completes at a moment when no function runs.
  std::shared_ptr<Future<Unit>> when_empty() {
    auto future = Future<Unit>::make();
    {
      MutexLock lock(mutex_);
      if (!runs_.empty()) {
        waiting_.push_back(future);
        return future;
      }
    }
    future->complete(Unit{});
    return future;
  }

  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }

  bool is_empty() const {
    MutexLock lock(mutex_);
    return runs_.empty();
  }

  std::vector<std::string> names() const {
    MutexLock lock(mutex_);
    std::vector<std::string> names;
    names.reserve(runs_.size());
    for (const Run* run : runs_) names.push_back(*run->name);
    return names;
  }

 private:
  mutable Mutex mutex_;
  std::vector<Run*> runs_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Future<Unit>>> waiting_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace distag
