#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "session/session.h"

namespace distag {

// Data about a worker that any thread may read without asking its loop. Written on the loop: at once as the worker
// starts, so that readers never see a half of it, then once as it stops. Thread-safe.
class WorkerView {
 public:
  struct Facts {
    std::string name;
    int32_t rank = -1;
    int32_t world_size = 0;
    bool is_open_world = false;
    bool started = false;
    SessionStats session = {};  // as it was at the shutdown
  };

  WorkerView(std::string name, int32_t world_size) {
    facts_.name = std::move(name);
    facts_.world_size = std::max(world_size, 0);
  }

  Facts get() const {
    MutexLock lock(mutex_);
    return facts_;
  }
  void set(const Facts& facts) {
    MutexLock lock(mutex_);
    facts_ = facts;
  }
  // `last`: the traffic of the session, if there was one.
  void stop(const std::optional<SessionStats>& last) {
    MutexLock lock(mutex_);
    facts_.started = false;
    if (last) facts_.session = *last;
  }

 private:
  mutable Mutex mutex_;
  Facts facts_ GUARDED_BY(mutex_);
};

}  // namespace distag
