#include "base/loop_seat.h"

#include <utility>

namespace distag {
namespace {

// How long a thread that waits tries to take the seat.
constexpr Nanos kSeatPatience = 5 * kMicrosecond;

}  // namespace

bool LoopSeat::take_posted(TaskQueue& tasks) {
  MutexLock lock(mutex_);
  if (stopping_ && posted_.empty()) return false;
  tasks.swap(posted_);
  has_urgent_ = false;
  return true;
}

LoopSeat::Sight LoopSeat::look(bool is_leader) {
  MutexLock lock(mutex_);
  if (has_urgent_ || stopping_) return Sight::kWork;
  if (!is_leader && is_wanted_.load(std::memory_order_relaxed)) return Sight::kEnd;
  return posted_.empty() ? Sight::kNothing : Sight::kWork;
}

void LoopSeat::begin() {
  loop_thread_ = std::this_thread::get_id();
  own();
}

// Whether nothing is left for the loop's own thread. A thread that wants the seat runs what it posted itself.
bool LoopSeat::can_be_left() const {
  if (posted_.empty()) return !stopping_;
  return !stopping_ && !has_urgent_ && is_wanted_.load(std::memory_order_relaxed);
}

bool LoopSeat::leave() {
  MutexLock lock(mutex_);
  if (!can_be_left()) return false;
  holder_ = Holder::kFree;
  sleeping_ = true;
  return true;
}

bool LoopSeat::come_back() {
  MutexLock lock(mutex_);
  if (holder_ != Holder::kFree) return false;
  holder_ = Holder::kLoop;
  sleeping_ = false;
  return true;
}

// Does not yield: if both threads share a core, the one that has the seat is to go on.
bool LoopSeat::take(const Completion& awaited) {
  is_wanted_.store(true, std::memory_order_relaxed);
  const Nanos latest = clock_.now() + kSeatPatience;
  bool is_taken = false;
  do {
    MutexLock lock(mutex_);
    is_taken = holder_ == Holder::kFree && !stopping_;
    if (!is_taken) continue;
    holder_ = Holder::kLeader;
    sleeping_ = false;
    own();
    poller_.disarm();  // while taking the seat: else descriptors would wake the loop's thread again and again
  } while (!is_taken && !awaited.is_done() && clock_.now() < latest);
  is_wanted_.store(false, std::memory_order_relaxed);
  if (is_taken) takes_.fetch_add(1, std::memory_order_relaxed);
  return is_taken;
}

bool LoopSeat::begin_rest(bool has_work) {
  MutexLock lock(mutex_);
  sleeping_ = !has_work && posted_.empty() && !stopping_;
  return sleeping_;
}

void LoopSeat::end_rest() {
  MutexLock lock(mutex_);
  sleeping_ = false;
}

bool LoopSeat::give_back(bool has_work) {
  MutexLock lock(mutex_);
  poller_.arm();
  owner_ = loop_thread_;
  holder_ = Holder::kFree;
  const bool others_wait = waiting_.load(std::memory_order_relaxed) > 1;
  sleeping_ = !has_work && !others_wait && can_be_left();
  return sleeping_;
}

// The holder of the seat if it sleeps; the caller has to wake it.
std::optional<LoopSeat::Holder> LoopSeat::take_sleeper() {
  if (!std::exchange(sleeping_, false)) return {};
  return holder_;
}

void LoopSeat::wake(std::optional<Holder> sleeper) noexcept {
  if (!sleeper) return;
  if (*sleeper == Holder::kLeader) {
    poller_.bell()->ring();
  } else {
    poller_.wake();
  }
}

void LoopSeat::wake() noexcept {
  is_wanted_.store(false, std::memory_order_relaxed);
  std::optional<Holder> sleeper;
  {
    MutexLock lock(mutex_);
    if (!posted_.empty()) sleeper = take_sleeper();
  }
  wake(sleeper);
}

}  // namespace distag
