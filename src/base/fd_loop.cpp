#include "base/fd_loop.h"

#include <sched.h>

#include <algorithm>
#include <cassert>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/idle_checks.h"
#include "base/lookouts.h"
#include "base/loop_scopes.h"
#include "base/loop_seat.h"
#include "base/parker.h"
#include "base/poller.h"
#include "base/reserve.h"
#include "base/task_runner.h"
#include "base/timer_queue.h"

namespace distag {
namespace {

// How long a loop that ran out of work goes on looking for more before it sleeps: waking a sleeping core costs as much
// as a small message, and an answer often comes within this time.
constexpr Nanos kLookout = 60 * kMicrosecond;
// How often a loop with lookouts asks the system whether descriptors are readable: asking costs more than looking.
constexpr Nanos kPollGap = 5 * kMicrosecond;
// How long the reserve stays short before it is refilled: others may need the memory more.
constexpr Nanos kRefillPause = 10 * kMillisecond;
// How long a loop sleeps without looking first, once it lost its core while it looked; but not within a message.
constexpr Nanos kCrowded = 10 * kMillisecond;
// How long a thread that waits runs the loop for others at a time.
constexpr Nanos kLongestLead = 2 * kMillisecond;
// How long such a thread sleeps with the seat in total: a longer wait does not notice the cost of a second wake.
constexpr Nanos kLongestRest = 10 * kMillisecond;
constexpr Nanos kShortestRest = kMillisecond;  // the poller counts in these

}  // namespace

// The state of the loop, for the thread that has the seat. A turn runs the tasks that are posted, the timers that are
// due, and the checks before a sleep; it looks at descriptors when nothing else is left, or when they have waited for
// long.
struct FdLoop::State {
  using Sight = LoopSeat::Sight;

  State(std::string name_, ThreadHooks hooks_, std::shared_ptr<Reserve> reserve_)
      : name(std::move(name_)), hooks(std::move(hooks_)), reserve(std::move(reserve_)) {}

  // ---- on the loop's own thread ----
  void run();
  void rest();
  // ---- on a thread that waits ----
  void lead(Completion& awaited, Nanos deadline);
  bool lead_until(const Completion& awaited, Nanos deadline);
  bool will_ring(Completion& awaited) noexcept;
  void rest_as_leader(const Completion& awaited, Nanos until);
  bool give_seat_back();
  // ---- a turn ----
  void mend_reserve();
  bool run_batch();
  void fire_timers();
  bool check_idle();
  bool look_for_work(const Completion* awaited);
  Sight look(const Completion* awaited);
  bool are_descriptors_due() const;
  bool has_polled_lately() const;
  void look_at_descriptors();
  bool poll();
  void dispatch();
  void run_task(Task& task);
  void destroy_left();

  const std::string name;
  const ThreadHooks hooks;
  const std::shared_ptr<Reserve> reserve;  // nullptr: none
  RefusingPolicy policy{name};
  Executor* host_code = nullptr;
  TaskRunner runner;
  Poller poller;
  LoopSeat seat{poller, runner.clock()};
  TaskQueue batch;
  TimerQueue timers;
  IdleChecks idle_checks;
  Lookouts lookouts;
  Nanos crowded_until = 0;
  bool has_heard = false;    // since it slept last: a task was posted, or a descriptor became readable
  Nanos refill_at = kNever;  // unless the reserve is whole
  Nanos polled_at = 0;
};

// ---- a turn ----

bool FdLoop::State::are_descriptors_due() const { return runner.last() - polled_at >= kLookout; }

bool FdLoop::State::has_polled_lately() const { return lookouts.are_there() && runner.last() - polled_at < kPollGap; }

void FdLoop::State::mend_reserve() {
  if (!reserve || !reserve->is_short()) return;
  if (refill_at == kNever) refill_at = runner.last() + kRefillPause;
  if (runner.last() < refill_at) return;
  refill_at = reserve->refill() ? kNever : runner.last() + kRefillPause;
}

// False when the loop is stopping and there is nothing left to run.
bool FdLoop::State::run_batch() {
  if (!seat.take_posted(batch)) return false;
  has_heard = has_heard || !batch.empty();
  while (!batch.empty()) {
    Task task = batch.pop();
    run_task(task);
  }
  return true;
}

void FdLoop::State::fire_timers() {
  // A timer that a task starts anew waits for the next turn, so that posted tasks and descriptors get theirs.
  for (size_t left = timers.size(); left > 0; --left) {
    Task task = timers.take_due(runner.last());
    if (!task) return;
    run_task(task);
  }
}

bool FdLoop::State::check_idle() {
  bool more = false;
  idle_checks.each([this, &more](const std::function<bool()>& check) {
    runner.run([&more, &check] { more |= check(); }, [] { return "a check before the loop sleeps"; });
  });
  has_heard = has_heard || more;
  return more;
}

// Looks around without a system call.
FdLoop::State::Sight FdLoop::State::look(const Completion* awaited) {
  if (lookouts.has_work()) return Sight::kWork;
  if (awaited != nullptr && awaited->is_done()) return Sight::kEnd;
  return seat.look(awaited != nullptr);
}

// False when nothing came for a while, when `awaited` is done, or when another thread is to do the rest. Yields the
// core between looks. If it comes back late and finds nothing to do, others want the core: a thread that sleeps gets it
// back sooner than one that looks around.
bool FdLoop::State::look_for_work(const Completion* awaited) {
  if ((runner.last() < crowded_until || !has_heard) && !lookouts.is_under_way()) return false;
  const Nanos until = std::min(runner.last() + kLookout, timers.next_due());
  do {
    sched_yield();
    const Nanos before = runner.last();
    const Nanos now = runner.ask_clock();
    const bool was_long_away = now - before > kLookout;
    const Sight sight = look(awaited);
    if (sight != Sight::kNothing) return sight == Sight::kWork;
    if (was_long_away) crowded_until = now + kCrowded;
    if (has_polled_lately()) continue;
    runner.ask_clock();
    if (poll()) {
      dispatch();
      return true;
    }
  } while (runner.last() < until);
  return runner.last() >= timers.next_due();
}

bool FdLoop::State::poll() {
  polled_at = runner.last();
  return poller.look();
}

// Called while other work keeps coming, which must not keep descriptors waiting.
void FdLoop::State::look_at_descriptors() {
  if (has_polled_lately() || !poll()) return;
  dispatch();
}

void FdLoop::State::dispatch() {
  poller.dispatch([this](const std::function<void()>& on_ready) {
    has_heard = true;
    runner.run(on_ready, [] { return "what watches a descriptor"; });
  });
}

void FdLoop::State::run_task(Task& task) {
  runner.run(
      [&task] {
        task();
        task.reset();
      },
      [&task] { return task.type_name(); });
}

void FdLoop::State::destroy_left() {
  // Objects that these own may call the loop from their destructors, as on its thread: each is emptied before its
  // content is destroyed.
  seat.own();
  const ReserveScope scope(reserve.get());
  TaskQueue left;
  seat.take_posted(left);
  while (!left.empty()) left.pop();
  timers.clear();
  idle_checks.clear();
  lookouts.clear();
  poller.clear();
  seat.disown();
}

// ---- the loop's own thread ----

void FdLoop::State::run() {
  const RunScope scope(policy, reserve.get(), host_code);
  runner.ask_clock();
  for (bool goes_on = true; goes_on;) {
    mend_reserve();
    runner.attempt([this, &goes_on] {
      const bool are_due = are_descriptors_due();
      goes_on = run_batch();
      if (!goes_on) return;
      fire_timers();
      if (check_idle() || are_due) {
        look_at_descriptors();
      } else if (!look_for_work(nullptr)) {
        rest();
      }
    });
    runner.ask_clock();
  }
}

// Other threads may run the loop meanwhile.
void FdLoop::State::rest() {
  if (!lookouts.begin_sleep()) {
    poller.set_alarm(timers.next_due());
    poller.arm();
    if (seat.leave()) {
      do {
        poller.rest();
      } while (!seat.come_back());
    }
  }
  lookouts.end_sleep();
  has_heard = false;
  runner.ask_clock();
  poll();
  dispatch();
}

// ---- a thread that waits ----

// Runs turns like the loop's own thread, until `awaited` is done or another thread is to go on. True: nothing is left.
bool FdLoop::State::lead_until(const Completion& awaited, Nanos deadline) {
  const Nanos latest = std::min(runner.ask_clock() + kLongestLead, deadline);
  bool has_ended = false;
  do {
    mend_reserve();
    bool is_idle = false;
    runner.attempt([this, &awaited, &has_ended, &is_idle] {
      const bool are_due = are_descriptors_due();
      has_ended = !run_batch() || awaited.is_done();
      if (has_ended) return;
      fire_timers();
      const bool more = check_idle();
      has_ended = awaited.is_done();
      if (has_ended) return;
      if (more || are_due) {
        look_at_descriptors();
      } else {
        is_idle = !look_for_work(&awaited);
      }
    });
    if (has_ended) return false;
    if (is_idle) return !awaited.is_done();
    runner.ask_clock();
  } while (!awaited.is_done() && runner.last() < latest);
  return false;
}

// Sleeps with the seat: what comes wakes the thread that waits for it, without a detour over the loop's thread.
void FdLoop::State::rest_as_leader(const Completion& awaited, Nanos until) {
  const bool has_work = lookouts.begin_sleep();
  poller.set_alarm(timers.next_due());
  poller.bell()->listen();
  const bool may_sleep = seat.begin_rest(has_work);
  if (may_sleep && !awaited.is_done()) poller.wait(static_cast<int>((until - runner.last()) / kMillisecond));
  seat.end_rest();
  poller.bell()->ignore();
  lookouts.end_sleep();
  has_heard = false;
  polled_at = runner.ask_clock();
  runner.attempt([this] { dispatch(); });
}

// Lets the end of `awaited` wake a leader that sleeps. False when there is no memory for that: it sleeps elsewhere.
bool FdLoop::State::will_ring(Completion& awaited) noexcept {
  try {
    awaited.on_done([bell = poller.bell()] { bell->ring(); });
  } catch (...) {
    return false;
  }
  return true;
}

// Does nothing unless the seat is free to take.
void FdLoop::State::lead(Completion& awaited, Nanos deadline) {
  if (!seat.take(awaited)) return;
  const RunScope scope(policy, reserve.get(), host_code);
  lookouts.end_sleep();
  const bool is_idle = lead_until(awaited, deadline);
  const Nanos until = std::min(runner.last() + kLongestRest, deadline);
  const auto may_rest = [this, until] { return until - runner.last() >= kShortestRest; };
  if (is_idle && may_rest() && will_ring(awaited)) {
    do {
      rest_as_leader(awaited, until);
    } while (lead_until(awaited, deadline) && may_rest());
  }
  if (!give_seat_back()) poller.wake();
}

// False when there is work for the loop's thread: it has to be woken.
bool FdLoop::State::give_seat_back() {
  bool has_work = true;
  runner.attempt([this, &has_work] { has_work = check_idle(); });
  has_work |= lookouts.begin_sleep();
  poller.set_alarm(timers.next_due());
  return seat.give_back(has_work);
}

// ---- the loop ----

FdLoop::FdLoop(std::string name, ThreadHooks hooks, std::shared_ptr<Reserve> reserve)
    : state_(std::make_unique<State>(std::move(name), std::move(hooks), std::move(reserve))) {}

FdLoop::~FdLoop() { stop(); }

void FdLoop::start() {
  const bool is_first = state_->seat.start([this] {
    return start_thread(state_->name, state_->hooks, [state = state_.get()] {
      state->seat.begin();
      state->run();
      state->seat.disown();
    });
  });
  if (!is_first) fail(Status::kInvalidState, "loop \"{}\" was started before", state_->name);
}

void FdLoop::set_host_code_executor(Executor* executor) { state_->host_code = executor; }

void FdLoop::set_watchdog(Watchdog watchdog) { state_->runner.set_watchdog(std::move(watchdog)); }

void FdLoop::set_on_failure(std::function<void(Error)> on_failure) {
  state_->runner.set_on_failure(std::move(on_failure));
}

void FdLoop::stop() {
  std::optional<std::thread> thread = state_->seat.stop();
  if (!thread) return;
  state_->poller.wake();
  state_->poller.bell()->ring();
  if (thread->joinable()) thread->join();
  state_->destroy_left();
}

bool FdLoop::post_soon(Task task) {
  const ReserveScope scope(state_->reserve ? state_->reserve.get() : current_reserve());
  return state_->seat.post([&task](TaskQueue& queue) { queue.push(std::move(task)); }, LoopSeat::Urgency::kSoon);
}

bool FdLoop::post_soon(TaskPlace& place, Task task) noexcept {
  return state_->seat.post([&place, &task](TaskQueue& queue) { queue.push(place, std::move(task)); },
                           LoopSeat::Urgency::kSoon);
}

bool FdLoop::post(Task task) {
  const ReserveScope scope(state_->reserve ? state_->reserve.get() : current_reserve());
  return state_->seat.post([&task](TaskQueue& queue) { queue.push(std::move(task)); },
                           Lead::is_quiet_to(*this) ? LoopSeat::Urgency::kByPoster : LoopSeat::Urgency::kNow);
}

bool FdLoop::post(TaskPlace& place, Task task) noexcept {
  return state_->seat.post([&place, &task](TaskQueue& queue) { queue.push(place, std::move(task)); },
                           Lead::is_quiet_to(*this) ? LoopSeat::Urgency::kByPoster : LoopSeat::Urgency::kNow);
}

Loop::TimerId FdLoop::start_timer(Nanos when, Task task) {
  assert(state_->seat.may_touch());
  return state_->timers.add(when, std::move(task));
}

void FdLoop::start_timer(TaskPlace& place, Nanos when, Task task) noexcept {
  assert(state_->seat.may_touch());
  state_->timers.add(place, when, std::move(task));
}

void FdLoop::cancel_timer(TimerId id) {
  assert(state_->seat.may_touch());
  state_->timers.cancel(id);
}

void FdLoop::wake() noexcept { state_->seat.wake(); }

bool FdLoop::lead(Completion& completion, Nanos timeout) {
  if (completion.is_done() || timeout == 0) return completion.is_done();
  const Nanos deadline = deadline_after(state_->runner.clock().now(), timeout);
  const Waiting waiting(state_->seat.waiting());
  if (waiting.is_alone()) state_->lead(completion, deadline);
  if (completion.is_done()) return true;
  state_->seat.wake();
  return park_until_done(completion, time_left(deadline));
}

const Clock& FdLoop::clock() const { return state_->runner.clock(); }

bool FdLoop::is_current() const { return state_->seat.is_mine(); }

void FdLoop::watch(int fd, std::function<void()> on_readable, std::function<void()> on_writable) {
  assert(state_->seat.may_touch());
  state_->poller.watch(fd, std::move(on_readable), std::move(on_writable));
}

void FdLoop::await_writable(int fd, bool is_awaited) noexcept {
  assert(state_->seat.may_touch());
  state_->poller.await_writable(fd, is_awaited);
}

void FdLoop::unwatch(int fd) {
  assert(state_->seat.may_touch());
  state_->poller.unwatch(fd);
}

uint64_t FdLoop::add_idle_check(std::function<bool()> check) {
  assert(state_->seat.may_touch());
  return state_->idle_checks.add(std::move(check));
}

void FdLoop::remove_idle_check(uint64_t id) {
  assert(state_->seat.may_touch());
  state_->idle_checks.remove(id);
}

void FdLoop::add_lookout(Lookout& lookout) {
  assert(state_->seat.may_touch());
  state_->lookouts.add(lookout);
}

void FdLoop::remove_lookout(Lookout& lookout) {
  assert(state_->seat.may_touch());
  state_->lookouts.remove(lookout);
}

uint64_t FdLoop::leads() const { return state_->seat.takes(); }

Nanos FdLoop::longest_task() const { return state_->runner.longest(); }

}  // namespace distag
