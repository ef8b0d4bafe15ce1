#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/loop.h"
#include "support/sim_scheduler.h"

namespace distag::sim {

// A loop thread. Its tasks run in the order they were posted, on the main stack; a wait in one is refused.
class SimLoop final : public Loop, public Lane {
 public:
  SimLoop(SimScheduler& scheduler, std::string name);
  ~SimLoop() override;

  [[nodiscard]] bool post(Task task) override;
  TimerId start_timer(Nanos when, Task task) override;
  void cancel_timer(TimerId id) override;
  const Clock& clock() const override;
  bool is_current() const override;

  // Runs the task here and now as if on the loop. For tests of what lives on a loop.
  void run(Task task);
  // Destroys what is left, as if on the loop; later tasks are destroyed unrun.
  void stop();
  size_t timer_count() const { return timers_.size(); }

  bool is_ready() const override;
  void run_one() override;
  std::string describe() const override;

 private:
  struct Timer {
    uint64_t event;
    Task task;
  };
  struct Entry {
    TimerId timer;  // 0: posted
    Task task;
  };

  std::deque<Entry> queue_;
  std::map<TimerId, Timer> timers_;
  TimerId next_timer_ = 1;
  bool stopped_ = false;
};

// A pool of threads, as many as are needed: tasks begin in random order, each on a fiber of its own.
class SimExecutor final : public Executor, public Lane {
 public:
  SimExecutor(SimScheduler& scheduler, std::string name);
  ~SimExecutor() override;  // stops

  [[nodiscard]] bool post(Task task) override;
  size_t waiting() const override;
  // Destroys what has not begun; waits that have not ended throw CANCELLED.
  void stop();
  size_t running() const { return fibers_.size(); }

  bool is_ready() const override;
  void run_one() override;
  std::string describe() const override;

 private:
  friend class SimScheduler;
  struct Running {
    std::unique_ptr<Fiber> fiber;
    bool aborted = false;
  };

  void resume(Fiber* fiber);
  bool is_aborted(const Fiber* fiber) const;

  std::vector<Task> tasks_;
  std::map<Fiber*, Running> fibers_;
  std::vector<Fiber*> order_;  // of fibers_, by their begin: addresses differ from run to run
  bool stopped_ = false;
};

}  // namespace distag::sim
