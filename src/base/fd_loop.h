#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/loop.h"
#include "base/thread.h"

namespace distag {

class Executor;
class Reserve;

// Work that other threads leave in memory, without a system call while the loop is awake. All functions on the loop.
class Lookout {
 public:
  virtual ~Lookout() = default;
  // Whether there is work. Cheap: called at each look around.
  virtual bool has_work() noexcept = 0;
  // Whether a part of a message has come or gone, so that the rest should follow at any moment.
  virtual bool is_under_way() const noexcept { return false; }
  // The loop is about to sleep: from now on a thread that leaves work wakes it by a descriptor that it watches. True:
  // there is work already, and the loop does not sleep.
  virtual bool begin_sleep() noexcept = 0;
  // After each begin_sleep().
  virtual void end_sleep() noexcept = 0;
};

// The production loop: epoll over an eventfd (posted tasks), the timers and watched descriptors. The thread that has
// the seat runs it, one at a time: the loop's own thread, or, while that sleeps, a thread that waits for something the
// loop brings (see lead()). A wait within a task is refused with INVALID_STATE. Methods that are "on the loop" may also
// be called while the loop does not run.
class FdLoop final : public Loop {
 public:
  // The clock is the steady clock. The loop's thread and posting threads fall back on the reserve. Throws OUT_OF_MEMORY
  // when descriptors run out.
  FdLoop(std::string name, ThreadHooks hooks, std::shared_ptr<Reserve> reserve = nullptr);
  ~FdLoop() override;  // stops

  // Called on the loop with what a task, a timer or a callback threw. It must not throw. Set before the start.
  void set_on_failure(std::function<void(Error)> on_failure);

  // The executor for host code that comes up on the loop. Set before the start.
  void set_host_code_executor(Executor* executor);

  // The processor time of a task, without the time it waited for a processor; and, for a task of more than a
  // millisecond, its page faults, whose time is included.
  struct Cost {
    Nanos taken = 0;
    int64_t page_faults = 0;
  };
  // Called when a task, timer or callback has ended, with the type of what ran, which names where it was written, and
  // its cost. For tests. Set before the start.
  using Watchdog = std::function<void(const char* what, const Cost& cost)>;
  void set_watchdog(Watchdog watchdog);

  void start();  // the thread; tasks posted before it are kept
  // Takes no further task, runs those it has taken, then ends and joins the thread; destroys its timers and what it
  // watches, as if on the loop. One thread at a time; not from the loop itself.
  void stop();

  [[nodiscard]] bool post(Task task) override;
  [[nodiscard]] bool post(TaskPlace& place, Task task) noexcept override;
  [[nodiscard]] bool post_soon(TaskPlace& place, Task task) noexcept override;
  [[nodiscard]] bool post_soon(Task task) override;
  TimerId start_timer(Nanos when, Task task) override;
  void start_timer(TaskPlace& place, Nanos when, Task task) noexcept override;
  void cancel_timer(TimerId id) override;
  bool has_leaders() const override { return true; }
  void wake() noexcept override;
  // Takes the seat when the loop's thread sleeps or merely looks for work, and no other thread waits here. While there
  // is nothing to do, the caller sleeps with the seat. It gives the seat back once the completion is done, after 2 ms
  // of work for others at a time or 10 ms of sleep; then the loop's own thread does the rest, and the caller sleeps
  // elsewhere.
  bool lead(Completion& completion, Nanos timeout) override;
  const Clock& clock() const override;
  bool is_current() const override;

  // Calls back while the descriptor is readable (level-triggered), or has failed. On the loop only. Unwatch before
  // closing it.
  void watch(int fd, std::function<void()> on_readable, std::function<void()> on_writable = nullptr);
  // Starts or stops calls of on_writable, which happen while the descriptor takes bytes. On the loop only.
  void await_writable(int fd, bool is_awaited) noexcept;
  void unwatch(int fd);

  // Called each time before the loop would sleep, until all checks return false ("nothing more to do"). For work that
  // tasks gather, such as the bytes of many messages. On the loop only; returns an id for remove_idle_check.
  uint64_t add_idle_check(std::function<bool()> check);
  void remove_idle_check(uint64_t id);

  // The lookout is asked while the loop looks for work; an idle check does that work. On the loop only.
  void add_lookout(Lookout& lookout);
  void remove_lookout(Lookout& lookout);

  // The longest task so far. Any thread.
  Nanos longest_task() const;
  // How often a waiting thread has taken the seat. Any thread.
  uint64_t leads() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distag
