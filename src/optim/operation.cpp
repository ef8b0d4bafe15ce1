#include "optim/operation.h"

#include <utility>

#include "base/error.h"

namespace distag::optim {

void Operation::after(const std::shared_ptr<Round>& round, Next next) {
  if (!std::exchange(has_begun_, true)) {
    future_->mark_begun();
    future_->set_operation("optimizer");
    future_->set_canceller([weak = weak_from_this()] {
      if (const auto open = weak.lock()) open->cancel();
    });
  }
  bool is_cancelled = false;
  {
    MutexLock lock(mutex_);
    round_ = round;
    is_cancelled = is_cancelled_;
  }
  if (is_cancelled) round->cancel();
  round->done()->on_done([self = shared_from_this(), round = round.get(), next = std::move(next)]() mutable {
    try {
      next(*self, *round);
    } catch (...) {
      self->future_->fail(current_error());
    }
  });
}

void Operation::cancel() {
  std::shared_ptr<Round> round;
  {
    MutexLock lock(mutex_);
    is_cancelled_ = true;
    round = round_.lock();
  }
  if (round != nullptr) round->cancel();
}

}  // namespace distag::optim
