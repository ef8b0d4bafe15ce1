#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/future.h"
#include "base/random.h"
#include "support/sim_fiber.h"

namespace distag::sim {

class SimScheduler;
class SimExecutor;

// The simulation cannot go on: nothing is left that could ever run, or a wait took longer than any wait may.
class SimStuck : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SimClock final : public Clock {
 public:
  Nanos now() const override { return now_; }

 private:
  friend class SimScheduler;
  Nanos now_ = kSecond;
};

// Something with tasks: a loop or an executor. A frozen lane keeps its tasks and runs none, like a stopped process.
class Lane {
 public:
  Lane(SimScheduler& scheduler, std::string name);
  virtual ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  void freeze() { frozen_ = true; }
  void thaw() { frozen_ = false; }
  bool is_frozen() const { return frozen_; }
  // Busy with a task that takes time: see SimScheduler::set_longest_task.
  bool is_busy(Nanos now) const { return now < busy_until_; }
  void keep_busy_until(Nanos when) { busy_until_ = when; }
  const std::string& name() const { return name_; }
  // The executor for host code that comes up in tasks of this lane, as on a thread of distag. nullptr: run it here.
  void set_host_code_executor(Executor* executor) { host_code_ = executor; }

  virtual bool is_ready() const = 0;
  virtual void run_one() = 0;
  virtual std::string describe() const = 0;

 protected:
  SimScheduler& scheduler_;
  Executor* host_code() const { return host_code_; }

 private:
  const std::string name_;
  Executor* host_code_ = nullptr;
  bool frozen_ = false;
  Nanos busy_until_ = 0;
};

// A single thread that plays all threads of a simulation: it picks at random, from a seed, among everything that could
// run now, and moves the clock on when nothing can. The thread that makes it is its main thread; host functions and
// host threads run on fibers, so a wait anywhere lets all others go on. Everything it drives is made after it and
// destroyed before it.
class SimScheduler {
 public:
  explicit SimScheduler(uint64_t seed);
  ~SimScheduler();
  SimScheduler(const SimScheduler&) = delete;
  SimScheduler& operator=(const SimScheduler&) = delete;

  const SimClock& clock() const { return clock_; }
  Nanos now() const { return clock_.now_; }
  uint64_t seed() const { return seed_; }
  SeededRandom& random() { return random_; }
  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : random_.next() % bound; }
  Nanos between(Nanos low, Nanos high) {
    return low + static_cast<Nanos>(below(static_cast<uint64_t>(high - low) + 1));
  }
  bool chance(double probability);

  // Runs `event` at `when`, between the tasks of all lanes; it only moves things into their queues.
  uint64_t at(Nanos when, Task event);
  void cancel(uint64_t event);

  // Runs one thing, or moves the clock to the next event. False when there is nothing left at all.
  bool step();

  // From the main thread only. run_until: false when it does not come true within the timeout (negative: none).
  bool run_until(const std::function<bool()>& condition, Nanos timeout = kForever);
  void run_for(Nanos duration);

  // A thread of the host: a task that may wait. Its future fails with what the task threw.
  std::shared_ptr<Future<Unit>> spawn(Task task);
  // Ends the waits of host threads with CANCELLED, before what they use is taken down.
  void stop_host_threads();

  // A wait without end fails as stuck after this much virtual time; timers that go on for ever would hide it.
  void set_longest_wait(Nanos longest) { longest_wait_ = longest; }

  // Each task keeps its lane busy for up to this long.
  void set_longest_task(Nanos longest) { longest_task_ = longest; }
  // Runs after every step, to see what it did.
  void set_observer(std::function<void()> observer) { observer_ = std::move(observer); }

  uint64_t steps() const { return steps_; }
  std::string dump() const;

 private:
  friend class Lane;
  friend class SimLoop;
  friend class SimExecutor;

  // A fiber that waits. The completion and the timer both point here, weakly, so that neither outlives the wait.
  struct Waiting {
    SimExecutor* pool;
    Fiber* fiber;
    bool resumable = false;
  };
  class Policy;

  bool wait(Completion& completion, Nanos timeout);
  void run_lane(Lane& lane);
  bool wait_in_fiber(Completion& completion, Nanos deadline);
  void check_wait() const;
  void fire_events();
  [[noreturn]] void fail_stuck(const std::string& why) const;

  std::unique_ptr<Fiber> take_fiber();
  void give_fiber(std::unique_ptr<Fiber> fiber);

  const uint64_t seed_;
  SeededRandom random_;
  SimClock clock_;
  uint64_t steps_ = 0;
  uint64_t next_event_ = 1;
  std::map<std::pair<Nanos, uint64_t>, Task> events_;
  std::map<uint64_t, Nanos> event_times_;
  std::vector<Lane*> lanes_;
  std::vector<std::shared_ptr<Waiting>> resumable_;
  std::vector<std::unique_ptr<Fiber>> free_fibers_;
  const Lane* current_ = nullptr;        // the lane whose task runs
  SimExecutor* current_pool_ = nullptr;  // and the executor, when it runs in a fiber
  Fiber* current_fiber_ = nullptr;
  Nanos longest_task_ = 0;
  std::function<void()> observer_;
  Nanos longest_wait_ = 3600 * kSecond;
  std::unique_ptr<Policy> policy_;
  WaitPolicy* previous_policy_ = nullptr;
  std::unique_ptr<SimExecutor> host_threads_;
};

}  // namespace distag::sim
