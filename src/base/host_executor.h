#pragma once

#include <list>
#include <memory>

#include "base/executor.h"

namespace distag {

class HostPump;

// A task with its place in a queue: posting it needs no memory.
using OneTask = std::list<Task>;

// Runs tasks only inside poll(), in the order they were posted, and in any wait of the thread that polls (the last one
// that did, at first the one that made this). One task at a time, except within a task that waits.
class HostExecutor final : public Executor {
 public:
  HostExecutor();
  ~HostExecutor() override;  // stops without waiting

  [[nodiscard]] bool post(Task task) override;
  // The same, but needs no memory; the task is dropped once this is stopped.
  void post_or_drop_made(OneTask task);
  size_t waiting() const override;

  // Runs at most `max_items` tasks (0: any number) and starts none once `max_time` has passed (negative: no limit).
  // Does not wait for more. Returns how many ran: none while another thread is inside a task.
  size_t poll(size_t max_items, Nanos max_time);

  bool is_stopped() const;
  // Whether a thread is inside a task now.
  bool is_running() const;

  // Completes `next` with the next task that is posted, or at the stop. A caller that waits no longer has to forget it.
  void add_waiter(std::shared_ptr<Future<Unit>> next);
  void forget_waiter(const std::shared_ptr<Future<Unit>>& next);

  // Takes no further task, destroys those not begun, and waits for a task that another thread is inside. False when
  // that still runs after `timeout` (negative: none): call again.
  bool stop(Nanos timeout = kForever);

  // Readable while there is something to run. Throws OUT_OF_MEMORY when descriptors run out.
  int fd() const;

 private:
  std::shared_ptr<HostPump> pump_;
};

}  // namespace distag
