// The seat: the one thread that has it runs the loop.
#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "base/fd_loop_state.h"

namespace distag {
namespace {

// How long a thread that waits tries to take the seat, and how long it runs the loop for others at a time.
constexpr Nanos kSeatPatience = 5 * kMicrosecond;
constexpr Nanos kLongestLead = 2 * kMillisecond;
// How long it sleeps with the seat, all in all: a wait that is longer does not notice the second wake that it costs.
constexpr Nanos kLongestRest = 10 * kMillisecond;
constexpr Nanos kShortestRest = kMillisecond;  // the poller counts in these

}  // namespace

void FdLoop::State::run() {
  const RunScope scope(policy, reserve.get(), host_code);
  last = steady.now();
  run_until_stopped();
}

void FdLoop::State::run_until_stopped() {
  for (;;) {
    mend_reserve();
    try {
      const bool are_due = are_descriptors_due();
      if (!run_batch()) return;
      fire_timers();
      if (check_idle() || are_due) {
        look_at_descriptors();
      } else if (!look_for_work(nullptr)) {
        rest();
      }
    } catch (...) {
      if (on_failure) on_failure(current_error());
    }
    last = steady.now();
  }
}

// As the loop's own thread does, until that is over or it is somebody else's turn, or (true) nothing is left to do.
bool FdLoop::State::lead_until(const Completion& awaited, Nanos deadline) {
  last = steady.now();
  const Nanos latest = std::min(last + kLongestLead, deadline);
  do {
    mend_reserve();
    try {
      const bool are_due = are_descriptors_due();
      if (!run_batch() || awaited.is_done()) return false;
      fire_timers();
      const bool more = check_idle();
      if (awaited.is_done()) return false;
      if (more || are_due) {
        look_at_descriptors();
      } else if (!look_for_work(&awaited)) {
        return !awaited.is_done();
      }
    } catch (...) {
      if (on_failure) on_failure(current_error());
    }
    last = steady.now();
  } while (!awaited.is_done() && last < latest);
  return false;
}

// Sleeps with the seat: what comes wakes the thread that waits for it, instead of one that wakes another.
void FdLoop::State::rest_as_leader(const Completion& awaited, Nanos until) {
  bool has_work = begin_sleep();
  poller.set_alarm(timers.next_due());
  poller.bell()->listen();
  {
    MutexLock lock(mutex);
    has_work |= !posted.empty() || stopping;
    sleeping = !has_work;
  }
  if (!has_work && !awaited.is_done()) poller.wait(static_cast<int>((until - last) / kMillisecond));
  {
    MutexLock lock(mutex);
    sleeping = false;
  }
  poller.bell()->ignore();
  end_sleep();
  has_heard = false;
  last = polled_at = steady.now();
  try {
    dispatch();
  } catch (...) {
    if (on_failure) on_failure(current_error());
  }
}

// Whether the end of it is told to a leader that sleeps. Without memory for that it sleeps elsewhere.
bool FdLoop::State::will_ring(Completion& awaited) noexcept {
  try {
    awaited.on_done([bell = poller.bell()] { bell->ring(); });
  } catch (...) {
    return false;
  }
  return true;
}

// Nothing unless the seat can be had.
void FdLoop::State::lead(Completion& awaited, Nanos deadline) {
  if (!take_seat(awaited)) return;
  leads.fetch_add(1, std::memory_order_relaxed);
  const RunScope scope(policy, reserve.get(), host_code);
  end_sleep();
  const bool is_idle = lead_until(awaited, deadline);
  const Nanos until = std::min(last + kLongestRest, deadline);
  const auto may_rest = [this, until] { return until - last >= kShortestRest; };
  if (is_idle && may_rest() && will_ring(awaited)) {
    do {
      rest_as_leader(awaited, until);
    } while (lead_until(awaited, deadline) && may_rest());
  }
  if (!give_seat_back()) poller.wake();
}

// The loop's own thread gives way when it merely looks for work. Without a yield: where the two share a core, the one
// that has the seat is to go on.
bool FdLoop::State::take_seat(const Completion& awaited) {
  is_wanted.store(true, std::memory_order_relaxed);
  const Nanos latest = steady.now() + kSeatPatience;
  bool is_taken = false;
  do {
    MutexLock lock(mutex);
    is_taken = seat == Seat::kFree && !stopping;
    if (!is_taken) continue;
    seat = Seat::kLeader;
    sleeping = false;
    owner = std::this_thread::get_id();
    poller.disarm();  // with the seat, or the loop's thread would be woken again and again until it is
  } while (!is_taken && !awaited.is_done() && steady.now() < latest);
  is_wanted.store(false, std::memory_order_relaxed);
  return is_taken;
}

// False when there is work for the loop's thread: it has to be woken.
bool FdLoop::State::give_seat_back() {
  bool has_work = true;
  try {
    has_work = check_idle();
  } catch (...) {
    if (on_failure) on_failure(current_error());
  }
  has_work |= begin_sleep();
  poller.set_alarm(timers.next_due());
  MutexLock lock(mutex);
  poller.arm();
  owner = loop_thread;
  seat = Seat::kFree;
  const bool others_wait = waiting.load(std::memory_order_relaxed) > 1;
  sleeping = !has_work && !others_wait && can_be_left();
  return sleeping;
}

// Whether nothing is left for the loop's own thread. One that wants the seat does what it has posted itself.
bool FdLoop::State::can_be_left() const {
  if (posted.empty()) return !stopping;
  return !stopping && !has_urgent && is_wanted.load(std::memory_order_relaxed);
}

// False when there is work, and the loop's thread keeps the seat.
bool FdLoop::State::leave_seat() {
  if (begin_sleep()) return false;
  poller.set_alarm(timers.next_due());
  poller.arm();
  MutexLock lock(mutex);
  if (!can_be_left()) return false;
  seat = Seat::kFree;
  sleeping = true;
  return true;
}

// Of the loop's thread, which has the seat before and after. Meanwhile others may run the loop.
void FdLoop::State::rest() {
  for (bool is_taken = !leave_seat(); !is_taken;) {
    poller.rest();
    MutexLock lock(mutex);
    if (seat != Seat::kFree) continue;  // whoever has it wakes this thread when it leaves something to do
    seat = Seat::kLoop;
    sleeping = false;
    is_taken = true;
  }
  end_sleep();
  has_heard = false;
  last = steady.now();
  poll();
  dispatch();
}

// The seat of the thread that sleeps, which whoever takes it has to wake.
std::optional<FdLoop::State::Seat> FdLoop::State::take_sleeper() {
  if (!std::exchange(sleeping, false)) return {};
  return seat;
}

void FdLoop::State::wake(std::optional<Seat> sleeper) noexcept {
  if (!sleeper) return;
  if (*sleeper == Seat::kLeader) {
    poller.bell()->ring();
  } else {
    poller.wake();
  }
}

void FdLoop::State::wake() noexcept {
  is_wanted.store(false, std::memory_order_relaxed);
  std::optional<Seat> sleeper;
  {
    MutexLock lock(mutex);
    if (!posted.empty()) sleeper = take_sleeper();
  }
  wake(sleeper);
}

}  // namespace distag
