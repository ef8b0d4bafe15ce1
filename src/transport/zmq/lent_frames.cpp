#include "transport/zmq/lent_frames.h"

#include <utility>

namespace distag {

void LentFrames::give_back(std::shared_ptr<const void> owner) noexcept {
  try {
    bool is_first = false;
    {
      MutexLock lock(mutex_);
      is_first = owners_.empty();
      owners_.push_back(std::move(owner));
    }
    if (is_first) loop_.post_or_drop([self = shared_from_this()] { self->release(); });
  } catch (...) {
    // Without memory for the task the owner goes with the next one that comes back; without memory for the list, here.
  }
}

void LentFrames::release() {
  std::vector<std::shared_ptr<const void>> owners;  // destroyed without the lock: deleters are code of the host
  MutexLock lock(mutex_);
  owners.swap(owners_);
}

}  // namespace distag
