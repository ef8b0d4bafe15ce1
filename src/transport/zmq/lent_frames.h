#pragma once

#include <atomic>
#include <memory>

#include "base/loop.h"
#include "base/mutex.h"

namespace distag {

// Brings the owners of frames that were sent without a copy back to the loop: libzmq releases them on its own threads,
// where no host code may run. Ends with the context: after that has ended no frame comes back, and release() drops the
// rest. Held by shared_ptr, as frames that come back late use it.
class LentFrames : public std::enable_shared_from_this<LentFrames> {
 public:
  // Made when the frame is sent, so that the way back needs no memory.
  class Loan {
   public:
    Loan(std::shared_ptr<const void> owner, std::shared_ptr<LentFrames> home);

   private:
    friend class LentFrames;

    std::shared_ptr<const void> owner_;
    std::shared_ptr<LentFrames> home_;
    std::unique_ptr<Loan> next_;
    // libzmq orders the two threads by atomics of its own, which a race detector does not see.
    std::atomic<bool> is_handed_over_{false};
  };

  explicit LentFrames(Loop& loop) : loop_(loop) {}
  ~LentFrames();

  // Returns the loan to its LentFrames. Any thread, while the loop exists.
  static void give_back(std::unique_ptr<Loan> loan) noexcept;

  // Drops returned loans, on the calling thread: the loop's, or the one that ends the context.
  void release();

 private:
  void take(std::unique_ptr<Loan> loan) noexcept;

  Loop& loop_;
  Mutex mutex_;
  std::unique_ptr<Loan> last_ GUARDED_BY(mutex_);  // the returned loans; each leads to the one before
  TaskPlace place_;                                // for the task that drops them, posted by the first
};

}  // namespace distag
