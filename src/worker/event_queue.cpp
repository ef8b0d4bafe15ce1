#include "worker/event_queue.h"

#include <utility>

namespace distag {

void EventQueue::push(OneEvent event) {
  Waiters reached;
  {
    MutexLock lock(mutex_);
    events_.splice(events_.end(), event);
    reached.swap(waiters_);
  }
  for (const auto& next : reached) next->complete(Unit{});
}

void EventQueue::put_back(OneEvent event) noexcept {
  MutexLock lock(mutex_);
  events_.splice(events_.begin(), event);
}

OneEvent EventQueue::pop() noexcept {
  OneEvent event;
  MutexLock lock(mutex_);
  if (!events_.empty()) event.splice(event.end(), events_, events_.begin());
  return event;
}

bool EventQueue::is_empty() const {
  MutexLock lock(mutex_);
  return events_.empty();
}

void EventQueue::mark_left() {
  Waiters reached;
  {
    MutexLock lock(mutex_);
    has_left_ = true;
    reached.swap(waiters_);
  }
  for (const auto& next : reached) next->complete(Unit{});
}

bool EventQueue::has_left() const {
  MutexLock lock(mutex_);
  return has_left_;
}

void EventQueue::clear() {
  std::list<Event> dropped;
  MutexLock lock(mutex_);
  dropped.swap(events_);
}

void EventQueue::add_waiter(std::shared_ptr<Future<Unit>> next) {
  {
    MutexLock lock(mutex_);
    if (events_.empty() && !has_left_) {
      waiters_.push_back(std::move(next));
      return;
    }
  }
  next->complete(Unit{});
}

void EventQueue::forget_waiter(const std::shared_ptr<Future<Unit>>& next) {
  MutexLock lock(mutex_);
  std::erase(waiters_, next);
}

}  // namespace distag
