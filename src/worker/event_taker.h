#pragma once

#include "base/clock.h"
#include "base/host_executor.h"
#include "worker/event_queue.h"

namespace distag {

// Waits for the events of a worker, which come by tasks of its host executor, in turn with all its other tasks. Lives
// on the stack.
class EventTaker {
 public:
  enum class Outcome { kCame, kNothingMore, kTimeIsUp };

  // `owner`: the owner of the worker's callbacks.
  EventTaker(EventQueue& queue, HostExecutor& host, const void* owner) : queue_(queue), host_(host), owner_(owner) {}

  // Gives the next event, without calls that are over. The calling thread becomes the one that polls, and runs tasks.
  Outcome take(OneEvent& event, Nanos timeout);
  // Waits for an event or a task, and runs nothing.
  Outcome wait_for_work(Nanos timeout);

 private:
  void run_due();
  OneEvent pop_open();
  bool has_ended() const { return queue_.has_left() || host_.is_stopped(); }

  EventQueue& queue_;
  HostExecutor& host_;
  const void* const owner_;
};

}  // namespace distag
