#pragma once

#include <pthread.h>

namespace distag {

// The calling thread is not cancelled (pthread_cancel) for as long as this lives: it would be unwound from a point of
// cancellation, and a catch (...) or noexcept on the way ends the process. A request that came meanwhile acts at the
// first such point afterwards. Nests.
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
