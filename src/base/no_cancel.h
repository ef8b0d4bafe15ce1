#pragma once

#include <pthread.h>

namespace distag {

// The calling thread is not cancelled (pthread_cancel) while this lives: a cancelled thread is unwound from a
// cancellation point, and a catch (...) or noexcept on the way ends the process. A request that came meanwhile acts at
// the first such point afterwards. Nests.
class NoCancel {
 public:
  NoCancel() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() {
    if (before_ != PTHREAD_CANCEL_DISABLE) pthread_setcancelstate(before_, nullptr);
  }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_DISABLE;
};

}  // namespace distag
