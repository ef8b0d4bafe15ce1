#include "transport/zmq/lent_frames.h"

#include <utility>

#include "base/mutex.h"

namespace distag {

void LentFrames::give_back(std::shared_ptr<const void> owner) noexcept {
  try {
    bool first = false;
    {
      MutexLock lock(mutex_);
      first = owners_.empty();
      owners_.push_back(std::move(owner));
    }
    if (first) loop_.post_or_drop([self = shared_from_this()] { self->release(); });
  } catch (...) {
    // Without memory for it the owner goes here, or with the next that comes back.
  }
}

void LentFrames::release() {
  std::vector<std::shared_ptr<const void>> owners;
  MutexLock lock(mutex_);
  owners.swap(owners_);
}

}  // namespace distag
