#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/executor.h"
#include "base/loop.h"
#include "support/sim_memory.h"
#include "support/sim_scheduler.h"

namespace distag::sim {

// The time of one host, which need not be that of the others: it may run at a rate of its own, jump ahead, or stop.
class SimHostClock final : public Clock {
 public:
  explicit SimHostClock(const Clock& world) : world_(world) {}

  Nanos now() const override;
  // From now on the clock is `ahead` further, and gains `rate` for each unit of the world's time; 0: it stands still.
  void set(Nanos ahead, double rate);
  double rate() const { return rate_; }
  // The time of the world at which this clock shows `when`, at its present rate. kNever: it never does.
  Nanos world_time(Nanos when) const;

 private:
  const Clock& world_;
  double rate_ = 1;
  Nanos shown_ = 0;  // at `since_` of the world
  Nanos since_ = 0;
};

// A loop thread. Its tasks run in the order they were posted, on the main stack; a wait in one is refused.
class SimLoop final : public Loop, public Lane {
 public:
  SimLoop(SimScheduler& scheduler, std::string name);
  ~SimLoop() override;

  [[nodiscard]] bool post(Task task) override;
  [[nodiscard]] bool post(TaskPlace& place, Task task) noexcept override;
  TimerId start_timer(Nanos when, Task task) override;
  void start_timer(TaskPlace& place, Nanos when, Task task) noexcept override;
  void cancel_timer(TimerId id) override;
  const Clock& clock() const override;
  bool is_current() const override;

  // Changes the clock of its host; see SimHostClock. From the main thread and events of the scheduler.
  void set_clock(Nanos ahead, double rate);

  // Runs the task here and now as if on the loop. For tests of what lives on a loop.
  void run(Task task);
  // Destroys what is left, as if on the loop; later tasks are destroyed unrun.
  void stop();
  size_t timer_count() const { return timers_.size(); }
  // The memory that its tasks use, and that its own worker's posts and timers ask for; nullptr: memory that is never
  // short. A task that throws for lack of memory is reported to `on_failure`, as by the loop of production.
  void set_memory(SimMemory* memory, std::function<void(const Error&)> on_failure) {
    memory_ = memory;
    on_failure_ = std::move(on_failure);
  }

  bool is_ready() const override;
  void run_one() override;
  std::string describe() const override;

 private:
  struct Timer {
    Nanos when;  // by the clock of the host
    Task task;
    TaskPlace* place = nullptr;  // which has the task in place of `task`
    uint64_t event = 0;          // 0: its time does not come
    bool is_due = false;
  };
  struct Entry {
    TimerId timer;  // 0: posted
    Task task;
    TaskPlace* place = nullptr;  // which has the task in place of `task`
  };

  TimerId add_timer(Timer timer);
  void schedule(TimerId id, Timer& timer);
  void ask_for_memory() const;
  void run_or_fail(Task& task);

  SimHostClock clock_;
  std::deque<Entry> queue_;
  std::map<TimerId, Timer> timers_;
  TimerId next_timer_ = 1;
  bool stopped_ = false;
  SimMemory* memory_ = nullptr;
  std::function<void(const Error&)> on_failure_;
  // Sizes of the tables that production has: these ask for memory when they grow, and never shrink.
  size_t queue_room_ = 0;
  size_t timer_room_ = 0;
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
  size_t begun() const { return begun_; }
  // The memory that its tasks use; nullptr: memory that is never short. A task that throws for lack of it has ended.
  void set_memory(SimMemory* memory) { memory_ = memory; }

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

  SimMemory* memory_ = nullptr;
  std::vector<Task> tasks_;
  std::map<Fiber*, Running> fibers_;
  std::vector<Fiber*> order_;  // of fibers_, by their begin: addresses differ from run to run
  size_t begun_ = 0;           // tasks, since the beginning
  bool stopped_ = false;
};

}  // namespace distag::sim
