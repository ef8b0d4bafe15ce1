#pragma once

#include <cassert>
#include <utility>

#include "base/clock.h"
#include "base/task.h"

namespace distag {

// Room for one task of a loop, in its queue or among its timers, for work that has to get there when memory is short.
// The place is made while a failure can still be reported, mostly as a member of what the task holds. It stays until
// its task has been taken out of it, to be run or destroyed; then it is free again.
class TaskPlace {
 public:
  TaskPlace() = default;
  TaskPlace(const TaskPlace&) = delete;
  TaskPlace& operator=(const TaskPlace&) = delete;

  // For loops.
  void put(Task task) noexcept {
    assert(!task_);
    task_ = std::move(task);
  }
  Task take() noexcept { return std::move(task_); }

 private:
  friend class TaskQueue;
  friend class TimerQueue;

  Task task_;
  TaskPlace* next_ = nullptr;
  Nanos when_ = 0;  // only for a timer
  bool is_of_queue_ = false;
};

// Tasks in the order they were added. A task without a place gets one of the queue's own, which are reused. Not
// thread-safe.
class TaskQueue {
 public:
  TaskQueue() = default;
  ~TaskQueue();  // destroys the tasks that are left
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  bool empty() const { return first_ == nullptr; }
  // Throws bad_alloc when the queue has no place left and there is no memory for one.
  void push(Task task);
  void push(TaskPlace& place, Task task) noexcept;
  // The first task. The queue must not be empty.
  Task pop() noexcept;
  void swap(TaskQueue& other) noexcept;

 private:
  void append(TaskPlace& place) noexcept;

  TaskPlace* first_ = nullptr;
  TaskPlace* last_ = nullptr;
  TaskPlace* free_ = nullptr;  // the queue's own
};

}  // namespace distag
