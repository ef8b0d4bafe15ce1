#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/future.h"
#include "base/mutex.h"
#include "base/parker.h"
#include "base/task.h"

namespace distag {

// The queue of a HostExecutor, and how a waiting thread finds it: all living pumps of the process are in one list,
// which is empty and costs one load where no host polls.
//
// Lock order: the list, then one pump. No task runs and none is destroyed under a lock.
class HostPump : public std::enable_shared_from_this<HostPump> {
 public:
  HostPump();
  ~HostPump();
  HostPump(const HostPump&) = delete;
  HostPump& operator=(const HostPump&) = delete;

  void enlist();
  void stop();  // leaves the list, destroys what was not run
  // Whether another thread is inside a task.
  bool runs_elsewhere() const;
  // Completes once the pump is stopped and the task that ran then has ended.
  const std::shared_ptr<Future<Unit>>& ended() const { return ended_; }

  [[nodiscard]] bool post(std::list<Task> tasks);  // false once it is stopped
  size_t waiting() const;
  bool is_stopped() const;
  bool is_running() const;
  int fd();

  // Completes `next` with the next task that is posted, or at the stop. A caller that waits no longer has to forget it.
  void add_waiter(std::shared_ptr<Future<Unit>> next);
  void forget_waiter(const std::shared_ptr<Future<Unit>>& next);

  // Makes the calling thread the one that polls. False while another thread is inside a task.
  bool claim();
  // False when there was nothing to run, or another thread polls by now.
  bool run_one();

  static bool any();
  // Runs the tasks of all pumps that the calling thread polls until the completion is done.
  static bool wait(Completion& completion, Nanos timeout);

 private:
  class Watch;
  static std::vector<std::shared_ptr<HostPump>> polled_here();

  bool take(Task& task);
  void mark_readable() REQUIRES(mutex_);
  void clear_readable() REQUIRES(mutex_);

  const uint32_t generation_;  // pumps of a parent are dead in a forked child: their locks may be held for ever
  mutable Mutex mutex_;
  std::list<Task> tasks_ GUARDED_BY(mutex_);
  std::thread::id poller_ GUARDED_BY(mutex_);  // does not change while depth_ > 0, so one thread runs the tasks
  size_t depth_ GUARDED_BY(mutex_) = 0;        // tasks begun and not ended
  bool stopped_ GUARDED_BY(mutex_) = false;
  const std::shared_ptr<Future<Unit>> ended_ = Future<Unit>::make();
  int fd_ GUARDED_BY(mutex_) = -1;  // an eventfd, made when first asked for; readable while there are tasks
  std::vector<Parker*> watchers_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Future<Unit>>> waiters_ GUARDED_BY(mutex_);
  HostPump* previous_ = nullptr;
  HostPump* next_ = nullptr;
};

}  // namespace distag
