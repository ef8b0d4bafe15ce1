#include "base/task_queue.h"

#include <memory>

namespace distag {

TaskQueue::~TaskQueue() {
  while (!empty()) pop();
  while (free_ != nullptr) delete std::exchange(free_, free_->next_);
}

void TaskQueue::push(Task task) {
  if (free_ == nullptr) {
    free_ = new TaskPlace;
    free_->is_of_queue_ = true;
  }
  TaskPlace& place = *std::exchange(free_, free_->next_);
  place.put(std::move(task));
  append(place);
}

void TaskQueue::push(TaskPlace& place, Task task) noexcept {
  place.put(std::move(task));
  append(place);
}

// Reads nothing of a caller's place once its task is out: what the task holds may hold the place.
Task TaskQueue::pop() noexcept {
  TaskPlace& place = *first_;
  first_ = place.next_;
  if (place.is_of_queue_) place.next_ = std::exchange(free_, &place);
  return place.take();
}

void TaskQueue::swap(TaskQueue& other) noexcept {
  std::swap(first_, other.first_);
  std::swap(last_, other.last_);
  std::swap(free_, other.free_);
}

void TaskQueue::append(TaskPlace& place) noexcept {
  place.next_ = nullptr;
  (first_ == nullptr ? first_ : last_->next_) = &place;
  last_ = &place;
}

}  // namespace distag
