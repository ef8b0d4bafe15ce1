#include "transport/zmq/lent_frames.h"

#include <utility>

namespace distag {

LentFrames::Loan::Loan(std::shared_ptr<const void> owner, std::shared_ptr<LentFrames> home)
    : owner_(std::move(owner)), home_(std::move(home)) {
  is_handed_over_.store(true, std::memory_order_release);
}

LentFrames::~LentFrames() { release(); }

void LentFrames::give_back(std::unique_ptr<Loan> loan) noexcept {
  if (!loan->is_handed_over_.load(std::memory_order_acquire)) return;
  // The returned loan does not keep alive the list that it waits in.
  const std::shared_ptr<LentFrames> home = std::move(loan->home_);
  home->take(std::move(loan));
}

void LentFrames::take(std::unique_ptr<Loan> loan) noexcept {
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    is_first = last_ == nullptr;
    loan->next_ = std::move(last_);
    last_ = std::move(loan);
  }
  if (is_first) loop_.post_or_drop(place_, [self = shared_from_this()] { self->release(); });
}

void LentFrames::release() {
  std::unique_ptr<Loan> loan;
  {
    MutexLock lock(mutex_);
    loan = std::move(last_);
  }
  // Drops them one by one, without the lock: deleters are code of the host.
  while (loan) loan = std::move(loan->next_);
}

}  // namespace distag
