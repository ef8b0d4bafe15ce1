#include "base/timer_queue.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace distag {

TimerQueue::Id TimerQueue::add(Nanos when, Task task) {
  if (free_slots_.empty()) {
    if (slots_.size() >> kSlotBits != 0) fail(Status::kOverloaded, "{} timers are running already", slots_.size());
    slots_.emplace_back();
    free_slots_.reserve(slots_.capacity());  // then a slot can be freed without memory
    free_slots_.push_back(static_cast<uint32_t>(slots_.size() - 1));
  }
  const uint32_t index = free_slots_.back();
  Slot& slot = slots_[index];
  const Id id = slot.uses << kSlotBits | index;
  heap_.push_back({when, next_order_++, id});
  std::push_heap(heap_.begin(), heap_.end(), later);
  free_slots_.pop_back();
  slot.task = std::move(task);
  ++live_;
  return id;
}

void TimerQueue::add(TaskPlace& place, Nanos when, Task task) noexcept {
  place.put(std::move(task));
  place.when_ = when;
  TaskPlace** link = &first_placed_;
  if (first_placed_ != nullptr && last_placed_->when_ <= when) link = &last_placed_->next_;
  while (*link != nullptr && (*link)->when_ <= when) link = &(*link)->next_;
  place.next_ = std::exchange(*link, &place);
  if (place.next_ == nullptr) last_placed_ = &place;
  ++placed_;
}

void TimerQueue::cancel(Id id) {
  Slot* const slot = find(id);
  if (slot == nullptr) return;
  // Destroyed last: what a task owns may use this queue in its destructor.
  const Task task = release(id, *slot);
  drop_stale();
}

Nanos TimerQueue::next_due() const {
  const Nanos next = heap_.empty() ? kNever : heap_.front().when;
  return first_placed_ == nullptr ? next : std::min(next, first_placed_->when_);
}

Task TimerQueue::take_due(Nanos now) {
  if (first_placed_ != nullptr && first_placed_->when_ <= std::min(now, next_due())) return take_placed();
  if (heap_.empty() || heap_.front().when > now) return nullptr;
  const Id id = heap_.front().id;
  Task task = release(id, *find(id));
  drop_stale();
  return task;
}

Task TimerQueue::take_placed() noexcept {
  TaskPlace& place = *first_placed_;
  first_placed_ = place.next_;
  --placed_;
  return place.take();
}

void TimerQueue::clear() {
  while (first_placed_ != nullptr) take_placed();
  std::vector<Slot> left;
  for (Slot& slot : slots_) {
    left.push_back({slot.uses, std::move(slot.task)});
    ++slot.uses;
  }
  heap_.clear();
  free_slots_.clear();
  for (uint32_t index = 0; index < slots_.size(); ++index) free_slots_.push_back(index);
  live_ = 0;
}

TimerQueue::Slot* TimerQueue::find(Id id) {
  const size_t index = id & ((1u << kSlotBits) - 1);
  if (index >= slots_.size() || slots_[index].uses != id >> kSlotBits || !slots_[index].task) return nullptr;
  return &slots_[index];
}

Task TimerQueue::release(Id id, Slot& slot) {
  Task task = std::move(slot.task);
  ++slot.uses;
  free_slots_.push_back(static_cast<uint32_t>(id & ((1u << kSlotBits) - 1)));
  --live_;
  return task;
}

void TimerQueue::drop_stale() {
  // Most timers are cancelled long before they are due: without this the heap would keep them all.
  if (heap_.size() > 2 * live_ + 64) {
    std::erase_if(heap_, [this](const Entry& entry) { return find(entry.id) == nullptr; });
    std::make_heap(heap_.begin(), heap_.end(), later);
  }
  while (!heap_.empty() && find(heap_.front().id) == nullptr) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
  }
}

}  // namespace distag
