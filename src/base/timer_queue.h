#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/task_queue.h"

namespace distag {

// Tasks by the time at which they are due; those of one time in the order they were added. Adding and cancelling
// allocate nothing once the tables have grown. Not thread-safe.
class TimerQueue {
 public:
  using Id = uint64_t;

  // Ids are never 0 and never repeat.
  Id add(Nanos when, Task task);
  // At a place of the caller's: needs no memory. Fast for a task that is due after all others of this kind; else it
  // looks through those before it.
  void add(TaskPlace& place, Nanos when, Task task) noexcept;
  // Destroys the task. An id that was taken or cancelled is fine.
  void cancel(Id id);

  // kNever when empty.
  Nanos next_due() const;
  // Takes the first task that is due at `now`; an empty one when no task is due.
  Task take_due(Nanos now);

  size_t size() const { return live_ + placed_; }
  void clear();

 private:
  // An id is the number of a slot and how often that slot was used before.
  static constexpr unsigned kSlotBits = 24;
  struct Slot {
    uint64_t uses = 1;
    Task task;
  };
  struct Entry {
    Nanos when;
    uint64_t order;
    Id id;
  };
  static bool later(const Entry& a, const Entry& b) { return a.when != b.when ? a.when > b.when : a.order > b.order; }

  Slot* find(Id id);
  Task release(Id id, Slot& slot);
  Task take_placed() noexcept;
  void drop_stale();

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<Entry> heap_;  // with entries of cancelled tasks, except at its front
  uint64_t next_order_ = 0;
  size_t live_ = 0;
  TaskPlace* first_placed_ = nullptr;  // by time
  TaskPlace* last_placed_ = nullptr;   // if there is a first one
  size_t placed_ = 0;
};

}  // namespace distag
