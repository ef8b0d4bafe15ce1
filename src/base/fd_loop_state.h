#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd_loop.h"
#include "base/loop_scopes.h"
#include "base/mutex.h"
#include "base/poller.h"
#include "base/reserve.h"
#include "base/timer_queue.h"

namespace distag {

// The inside of a loop: what is posted and what a turn does (fd_loop.cpp), and who runs it (fd_loop_seat.cpp).
struct FdLoop::State {
  // Of a task: it wakes a loop that sleeps; the thread that posts it is about to run the loop; it has no waiter.
  enum class Urgency { kNow, kByPoster, kSoon };
  enum class Seat { kFree, kLoop, kLeader };

  struct IdleCheck {
    uint64_t id;
    std::shared_ptr<std::function<bool()>> check;  // null: removed
  };

  State(std::string name_, ThreadHooks hooks_, std::shared_ptr<Reserve> reserve_)
      : name(std::move(name_)), hooks(std::move(hooks_)), reserve(std::move(reserve_)) {}

  template <typename Push>
  bool post(Push&& push, Urgency urgency);

  // ---- the seat ----
  void run();
  void run_until_stopped();
  bool leave_seat();
  void rest();
  void lead(Completion& awaited, Nanos deadline);
  bool take_seat(const Completion& awaited);
  bool lead_until(const Completion& awaited, Nanos deadline);
  bool will_ring(Completion& awaited) noexcept;
  void rest_as_leader(const Completion& awaited, Nanos until);
  bool give_seat_back();
  bool can_be_left() const REQUIRES(mutex);
  std::optional<Seat> take_sleeper() REQUIRES(mutex);
  void wake(std::optional<Seat> sleeper) noexcept;
  void wake() noexcept;

  // ---- a turn ----
  void mend_reserve();
  bool run_batch();
  void fire_timers();
  bool check_idle();
  bool look_for_work(const Completion* awaited);
  enum class Sight { kNothing, kWork, kEnd };
  Sight look(const Completion* awaited);
  bool is_under_way() const;
  bool begin_sleep();
  void end_sleep();
  bool are_descriptors_due() const;
  bool has_polled_lately() const;
  void look_at_descriptors();
  bool poll();
  void dispatch();
  void run_task(Task& task);
  void destroy_left();

  // Whether the calling thread may touch what belongs to the loop: its own, and any as long as it does not run.
  bool may_touch() const {
    const std::thread::id now = owner;
    return now == std::this_thread::get_id() || now == std::thread::id();
  }

  // Calls it and keeps the longest time one took. For the watchdog it is asked first for what it is.
  template <typename Call, typename Describe>
  void timed(Call&& call, Describe&& what);

  const std::string name;
  const ThreadHooks hooks;
  Watchdog watchdog;
  std::function<void(Error)> on_failure;
  const std::shared_ptr<Reserve> reserve;  // nullptr: none
  SteadyClock steady;
  RefusingPolicy policy{name};
  Executor* host_code = nullptr;
  std::atomic<std::thread::id> owner{std::thread::id()};
  std::atomic<Nanos> longest{0};
  std::atomic<int> waiting{0};         // threads in lead()
  std::atomic<bool> is_wanted{false};  // the seat, by another thread than that which has it
  std::atomic<uint64_t> leads{0};

  Mutex mutex;
  TaskQueue posted GUARDED_BY(mutex);
  bool has_urgent GUARDED_BY(mutex) = false;  // some of them are not of a thread that is about to run the loop
  Seat seat GUARDED_BY(mutex) = Seat::kLoop;
  // Whoever leaves work wakes the loop's thread, as the seat is free, or the leader.
  bool sleeping GUARDED_BY(mutex) = false;
  bool stopping GUARDED_BY(mutex) = false;
  std::thread thread;

  // Of the thread that has the seat.
  std::thread::id loop_thread;
  Nanos last = 0;
  Nanos crowded_until = 0;
  bool has_heard = false;    // since it slept last: a task was posted, or a descriptor became readable
  Nanos refill_at = kNever;  // unless the reserve is whole
  TaskQueue batch;
  Poller poller;
  TimerQueue timers;
  std::vector<IdleCheck> idle_checks;
  uint64_t next_idle_check = 1;
  std::vector<Lookout*> lookouts;
  Nanos polled_at = 0;
};

}  // namespace distag
