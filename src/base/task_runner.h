#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "base/clock.h"
#include "base/fd_loop.h"

namespace distag {

// Runs what comes up on a loop. A failure ends only what has failed: it is reported and never thrown on. The clock is
// read once at the end of each call, so last() is the time now for what follows. For the thread that runs the loop,
// except for the clock and the longest time.
class TaskRunner {
 public:
  // Set before the start.
  void set_watchdog(FdLoop::Watchdog watchdog) { watchdog_ = std::move(watchdog); }
  void set_on_failure(std::function<void(Error)> on_failure) { on_failure_ = std::move(on_failure); }

  // Runs `call`, and keeps the longest time of all calls. `what` names the call for the watchdog, before it runs.
  template <typename Call, typename Describe>
  void run(Call&& call, Describe&& what) {
    const char* const watched = watchdog_ ? what() : nullptr;
    const FdLoop::Cost begin = watched == nullptr ? FdLoop::Cost{} : cost_so_far();
    attempt(call);
    if (watched != nullptr) watchdog_(watched, cost_since(begin));
    const Nanos end = clock_.now();
    if (end - last_ > longest_.load(std::memory_order_relaxed)) longest_.store(end - last_, std::memory_order_relaxed);
    last_ = end;
  }
  // Runs a step of the loop itself.
  template <typename Call>
  void attempt(Call&& call) {
    try {
      call();
    } catch (...) {
      if (on_failure_) on_failure_(current_error());
    }
  }

  const SteadyClock& clock() const { return clock_; }  // any thread
  Nanos longest() const { return longest_.load(); }    // any thread
  Nanos last() const { return last_; }
  Nanos ask_clock() { return last_ = clock_.now(); }

 private:
  // The cost of the calling thread.
  static FdLoop::Cost cost_so_far();
  static FdLoop::Cost cost_since(const FdLoop::Cost& begin);

  FdLoop::Watchdog watchdog_;
  std::function<void(Error)> on_failure_;
  SteadyClock clock_;
  Nanos last_ = 0;
  std::atomic<Nanos> longest_{0};
};

}  // namespace distag
