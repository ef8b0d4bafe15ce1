#include "base/future.h"

#include "base/each_step.h"
#include "base/mutex.h"

namespace distag {

void Completion::on_done(Task callback) {
  {
    MutexLock lock(mutex_);
    if (!done_.load(std::memory_order_relaxed)) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void Completion::run_all(std::vector<Task>& callbacks) {
  EachStep each;
  for (Task& callback : callbacks) each(callback);
  each.check();
}

void fail_dropped(Completion& completion) noexcept {
  if (completion.is_done()) return;
  Error error(Status::kCancelled, "shut down");  // short enough to need no memory
  try {
    error = Error(Status::kCancelled, "the worker was shut down");
  } catch (...) {
    // There is no memory for the longer text: the short one stays.
  }
  try {
    completion.fail(std::move(error));
  } catch (...) {
    // The completion is done; a callback of it found no memory.
  }
}

bool Completion::fail(Error error) {
  return finish([this, &error] { error_.emplace(std::move(error)); });
}

Error Completion::cancelled() const noexcept {
  try {
    if (describe_ == nullptr) return Error(Status::kCancelled, "cancelled by the caller");
    return Error(Status::kCancelled, describe_(subject_) + ": cancelled by the caller");
  } catch (...) {
    return Error(Status::kCancelled, "cancelled");  // short enough to need no memory
  }
}

void Completion::cancel() {
  Task canceller;
  {
    MutexLock lock(mutex_);
    if (claimed_ || done_.load(std::memory_order_relaxed)) return;
    // From here on claim() and further calls of cancel() do nothing.
    claimed_ = true;
    canceller = std::move(canceller_);
  }
  Error error = cancelled();
  const bool stopped = finish([this, &error]() REQUIRES(mutex_) {
    error_.emplace(std::move(error));
    error_->set_may_have_run(begun_);
  });
  if (stopped && canceller) canceller();
}

bool Completion::claim() {
  MutexLock lock(mutex_);
  if (claimed_ || done_.load(std::memory_order_relaxed)) return false;
  claimed_ = true;
  return true;
}

bool Completion::mark_begun() {
  MutexLock lock(mutex_);
  begun_ = true;
  return !done_.load(std::memory_order_relaxed);
}

}  // namespace distag
