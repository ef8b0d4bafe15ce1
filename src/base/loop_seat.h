#pragma once

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include "base/future.h"
#include "base/mutex.h"
#include "base/poller.h"
#include "base/task_queue.h"

namespace distag {

// Decides which thread runs a loop, and holds what is posted to it. The seat belongs to the loop's own thread, or to a
// thread that leads while that one sleeps, or is free. One lock guards the seat, the tasks and the sleep: a task is
// never posted past a thread that falls asleep, and a thread that posts wakes the one that sleeps. Taking the seat, or
// going on after a sleep with it, needs the lock, so no other thread touches the poller while a thread holds the lock
// and the loop sleeps. Any thread, unless a method says otherwise.
class LoopSeat {
 public:
  // For a task: it wakes a loop that sleeps; or its poster is about to run the loop; or it has no waiter.
  enum class Urgency { kNow, kByPoster, kSoon };
  enum class Sight { kNothing, kWork, kEnd };

  LoopSeat(Poller& poller, const Clock& clock) : poller_(poller), clock_(clock) {}

  // Whether the calling thread runs the loop; and whether it may touch what belongs to the loop, as any thread may
  // while the loop does not run.
  bool is_mine() const { return owner_ == std::this_thread::get_id(); }
  bool may_touch() const {
    const std::thread::id now = owner_;
    return now == std::this_thread::get_id() || now == std::thread::id();
  }
  // The calling thread runs the loop from now on, whatever the seat; before the loop's start or after its end.
  void own() { owner_ = std::this_thread::get_id(); }
  void disown() { owner_ = std::thread::id(); }

  // `push` puts the task into the queue. False: the loop takes no more tasks, and the caller has to destroy this one.
  template <typename Push>
  bool post(Push&& push, Urgency urgency);
  // The thread that posted under a Lead will not run the loop.
  void wake() noexcept;

  // Keeps the thread that `make` starts. False: there was one before, or the loop is stopped.
  template <typename Make>
  bool start(Make&& make) {
    MutexLock lock(mutex_);
    if (stopping_ || thread_.joinable()) return false;
    thread_ = make();
    return true;
  }
  // No task is taken any more. Returns the thread to join, the first time.
  std::optional<std::thread> stop() {
    MutexLock lock(mutex_);
    if (std::exchange(stopping_, true)) return {};
    return std::move(thread_);
  }

  // ---- on the thread that has the seat ----
  // Swaps the tasks that are posted for an empty queue. False: the loop is stopping, and nothing is left.
  bool take_posted(TaskQueue& tasks);
  // kEnd: another thread wants the seat.
  Sight look(bool is_leader);

  // ---- on the loop's own thread ----
  void begin();
  // Frees the seat to sleep. False: there is work.
  bool leave();
  // After a sleep. False: a leader has the seat, and wakes this thread if it leaves something to do.
  bool come_back();

  // ---- on a thread that waits ----
  std::atomic<int>& waiting() { return waiting_; }
  // The loop's own thread gives way while it merely looks for work. False: it did not within a few microseconds.
  bool take(const Completion& awaited);
  // Whether the leader may sleep with the seat: not if `has_work`, or if a task has come.
  bool begin_rest(bool has_work);
  void end_rest();
  // False when there is work for the loop's own thread: it has to be woken.
  bool give_back(bool has_work);
  uint64_t takes() const { return takes_; }

 private:
  enum class Holder { kFree, kLoop, kLeader };

  bool can_be_left() const REQUIRES(mutex_);
  std::optional<Holder> take_sleeper() REQUIRES(mutex_);
  void wake(std::optional<Holder> sleeper) noexcept;

  Poller& poller_;
  const Clock& clock_;
  std::atomic<std::thread::id> owner_{std::thread::id()};
  std::atomic<int> waiting_{0};         // threads that wait for what the loop brings
  std::atomic<bool> is_wanted_{false};  // another thread than the holder wants the seat
  std::atomic<uint64_t> takes_{0};
  std::thread::id loop_thread_;

  Mutex mutex_;
  TaskQueue posted_ GUARDED_BY(mutex_);
  bool has_urgent_ GUARDED_BY(mutex_) = false;  // some come from threads that are not about to run the loop
  Holder holder_ GUARDED_BY(mutex_) = Holder::kLoop;
  // A thread that leaves work wakes the loop's thread, if the seat is free, or the leader.
  bool sleeping_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_ GUARDED_BY(mutex_);
};

// A refused task is destroyed after the lock is gone.
template <typename Push>
bool LoopSeat::post(Push&& push, Urgency urgency) {
  // How long a task without a waiter may be put off.
  constexpr Nanos kSoon = kMillisecond;
  // Set before the task is there: a thread that sees the task and merely looks for work leaves it to the poster.
  const bool is_alone = waiting_.load(std::memory_order_relaxed) == 0;
  if (urgency == Urgency::kByPoster && is_alone) is_wanted_.store(true, std::memory_order_relaxed);
  std::optional<Holder> sleeper;
  {
    MutexLock lock(mutex_);
    if (stopping_) return false;
    push(posted_);
    has_urgent_ = has_urgent_ || urgency != Urgency::kByPoster;
    if (urgency == Urgency::kNow) sleeper = take_sleeper();
    if (urgency == Urgency::kSoon && sleeping_) poller_.set_alarm(clock_.now() + kSoon);
  }
  wake(sleeper);
  return true;
}

}  // namespace distag
