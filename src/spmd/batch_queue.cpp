#include "spmd/batch_queue.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/fail_future.h"

namespace distag::spmd {
namespace {

constexpr size_t kMostCancelled = 32;  // waiters, before those that were cancelled are removed

}  // namespace

BatchQueue::Wait BatchQueue::take(Nanos now) {
  auto wait = Future<Value>::make();
  wait->set_operation("loader");
  std::optional<Error> failure;
  Value batch;
  {
    MutexLock lock(mutex_);
    if (broken_) {
      failure = broken_;
    } else if (!ready_.empty()) {
      batch = std::move(ready_.front());
      ready_.pop_front();
      ++next_;
    } else if (has_ended_) {
      failure = std::exchange(failure_, std::nullopt);
    } else {
      if (waiters_.size() >= kMostCancelled) {
        std::erase_if(waiters_, [](const Waiter& waiter) { return waiter.wait->is_done(); });
      }
      waiters_.push_back({wait, now});
      return wait;
    }
  }
  if (failure) {
    wait->fail(*std::move(failure));
  } else {
    wait->complete(std::move(batch));
  }
  return wait;
}

BatchQueue::Wait BatchQueue::claim_waiter(Nanos now) {
  while (!waiters_.empty()) {
    const Waiter first = std::move(waiters_.front());
    waiters_.pop_front();
    waited_ += now - first.since;
    if (first.wait->claim()) return first.wait;
  }
  return nullptr;
}

void BatchQueue::put(Value batch, Nanos now) {
  Wait wait;
  {
    MutexLock lock(mutex_);
    if (broken_ || has_ended_) return;
    wait = claim_waiter(now);
    if (wait == nullptr) {
      ready_.push_back(std::move(batch));
      return;
    }
    ++next_;
  }
  wait->complete(std::move(batch));
}

void BatchQueue::end(std::optional<Error> failure, Nanos now) {
  Wait first;
  std::deque<Waiter> others;
  {
    MutexLock lock(mutex_);
    if (broken_ || std::exchange(has_ended_, true)) return;
    if (failure) first = claim_waiter(now);
    if (first == nullptr) failure_ = failure;
    others.swap(waiters_);
    for (const Waiter& other : others) waited_ += now - other.since;
  }
  EachStep each;
  if (first != nullptr) each([&] { fail_or_say_less(*first, *failure); });
  for (const Waiter& other : others) each([&other] { other.wait->complete(Value()); });
  each.check();
}

void BatchQueue::break_off(const Error& error) {
  std::deque<Waiter> waiters;
  std::deque<Value> ready;
  {
    MutexLock lock(mutex_);
    if (broken_) return;
    broken_ = error;
    waiters.swap(waiters_);
    ready.swap(ready_);
  }
  EachStep each;
  for (const Waiter& waiter : waiters) each([&] { fail_or_say_less(*waiter.wait, error); });
  each.check();
}

void BatchQueue::forget(const Wait& wait, Nanos now) {
  MutexLock lock(mutex_);
  const auto found =
      std::find_if(waiters_.begin(), waiters_.end(), [&wait](const Waiter& waiter) { return waiter.wait == wait; });
  if (found == waiters_.end()) return;
  waited_ += now - found->since;
  waiters_.erase(found);
}

uint64_t BatchQueue::next() const {
  MutexLock lock(mutex_);
  return next_;
}

BatchQueue::Counts BatchQueue::counts() const {
  MutexLock lock(mutex_);
  return {static_cast<uint32_t>(ready_.size()), next_, waited_};
}

}  // namespace distag::spmd
