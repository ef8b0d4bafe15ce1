#pragma once

#include <memory>
#include <vector>

#include "base/loop.h"
#include "base/mutex.h"

namespace distag {

// Brings the owners of frames that were sent without a copy back to the loop: libzmq lets go of them on its own
// threads, where nothing of the host may run. Ends with the context: after its term no frame comes back any more, and
// release() drops the rest. Held by shared_ptr, as frames that come back late use it.
class LentFrames : public std::enable_shared_from_this<LentFrames> {
 public:
  explicit LentFrames(Loop& loop) : loop_(loop) {}

  // Any thread, while the loop exists.
  void give_back(std::shared_ptr<const void> owner) noexcept;

  // Drops what came back, on the calling thread: the loop's, or the one that ends the context.
  void release();

 private:
  Loop& loop_;
  Mutex mutex_;
  std::vector<std::shared_ptr<const void>> owners_ GUARDED_BY(mutex_);
};

}  // namespace distag
