#include "base/fd_loop.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <ctime>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/poller.h"
#include "base/reserve.h"
#include "base/timer_queue.h"

namespace distag {
namespace {

// How long a loop that ran out of work goes on looking for more before it sleeps: to wake a sleeping core costs as much
// as a small message does, and an answer often comes within this time.
constexpr Nanos kLookout = 60 * kMicrosecond;
// How often a loop with lookouts asks the system whether descriptors are readable: to ask costs more than to look.
constexpr Nanos kPollGap = 5 * kMicrosecond;
// How long memory has to do without what the reserve lacks: others may need it more.
constexpr Nanos kRefillPause = 10 * kMillisecond;
// How long a loop sleeps at once after its core was taken while it looked for work; but not within a message.
constexpr Nanos kCrowded = 10 * kMillisecond;

// Time of the processor that the calling thread has used.
Nanos thread_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Nanos>(time.tv_sec) * kSecond + time.tv_nsec;
}

class RefusingPolicy final : public WaitPolicy {
 public:
  explicit RefusingPolicy(const std::string& loop_name) : loop_name_(loop_name) {}
  void check() override {
    fail(Status::kInvalidState,
         "a callback on the loop thread \"{}\" may not wait: use the _async call and go on in its callback",
         loop_name_);
  }
  bool wait(Completion&, Nanos) override {
    check();
    return false;
  }

 private:
  const std::string& loop_name_;
};

}  // namespace

struct FdLoop::State {
  struct IdleCheck {
    uint64_t id;
    std::shared_ptr<std::function<bool()>> check;  // null: removed
  };

  State(std::string name_, ThreadHooks hooks_, std::shared_ptr<Reserve> reserve_)
      : name(std::move(name_)), hooks(std::move(hooks_)), reserve(std::move(reserve_)) {}

  template <typename Push>
  bool post(Push&& push);
  void run();
  void mend_reserve();
  bool run_batch();
  void fire_timers();
  bool check_idle();
  bool look_for_work();
  bool is_under_way() const;
  bool begin_sleep();
  void end_sleep();
  bool has_polled_lately() const { return !lookouts.empty() && last - polled_at < kPollGap; }
  bool poll(Nanos deadline);
  void wait_for_work(bool busy);
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
  void timed(Call&& call, Describe&& what) {
    const char* const watched = watchdog ? what() : nullptr;
    const Nanos begin = watched == nullptr ? 0 : thread_time();
    try {
      call();
    } catch (...) {
      if (on_failure) on_failure(current_error());
    }
    if (watched != nullptr) watchdog(watched, thread_time() - begin);
    const Nanos end = steady.now();
    if (end - last > longest.load(std::memory_order_relaxed)) longest.store(end - last, std::memory_order_relaxed);
    last = end;
  }

  const std::string name;
  const ThreadHooks hooks;
  Watchdog watchdog;
  std::function<void(Error)> on_failure;
  const std::shared_ptr<Reserve> reserve;  // nullptr: none
  SteadyClock steady;
  std::atomic<std::thread::id> owner{std::thread::id()};
  std::atomic<Nanos> longest{0};

  Mutex mutex;
  TaskQueue posted GUARDED_BY(mutex);
  bool sleeping GUARDED_BY(mutex) = false;
  bool stopping GUARDED_BY(mutex) = false;
  std::thread thread;

  // Of the loop's thread.
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

void FdLoop::State::run() {
  const ReserveScope scope(reserve.get());
  RefusingPolicy policy(name);
  WaitPolicy* const before = exchange_wait_policy(&policy);
  for (;;) {
    last = steady.now();
    mend_reserve();
    try {
      if (!run_batch()) break;
      fire_timers();
      wait_for_work(check_idle());
    } catch (...) {
      if (on_failure) on_failure(current_error());
    }
  }
  exchange_wait_policy(before);
}

void FdLoop::State::mend_reserve() {
  if (!reserve || !reserve->is_short()) return;
  if (refill_at == kNever) refill_at = last + kRefillPause;
  if (last < refill_at) return;
  refill_at = reserve->refill() ? kNever : last + kRefillPause;
}

// False when the loop is stopping and there is nothing left to run.
bool FdLoop::State::run_batch() {
  {
    MutexLock lock(mutex);
    if (stopping && posted.empty()) return false;
    batch.swap(posted);
  }
  has_heard = has_heard || !batch.empty();
  while (!batch.empty()) {
    Task task = batch.pop();
    run_task(task);
  }
  return true;
}

void FdLoop::State::fire_timers() {
  // One that a task starts anew waits for the next turn, so that posted tasks and descriptors get theirs.
  for (size_t left = timers.size(); left > 0; --left) {
    Task task = timers.take_due(last);
    if (!task) return;
    run_task(task);
  }
}

bool FdLoop::State::check_idle() {
  bool more = false;
  for (size_t i = 0; i < idle_checks.size(); ++i) {
    // Held: the callback may remove itself.
    const auto check = idle_checks[i].check;
    if (check) timed([&more, &check] { more |= (*check)(); }, [] { return "a check before the loop sleeps"; });
  }
  std::erase_if(idle_checks, [](const IdleCheck& check) { return !check.check; });
  has_heard = has_heard || more;
  return more;
}

bool FdLoop::State::is_under_way() const {
  return std::any_of(lookouts.begin(), lookouts.end(), [](const Lookout* lookout) { return lookout->is_under_way(); });
}

// False when nothing came for a while. Gives its core away between looks. Nobody answers a timer that went off.
bool FdLoop::State::look_for_work() {
  if ((last < crowded_until || !has_heard) && !is_under_way()) return false;
  const Nanos until = std::min(last + kLookout, timers.next_due());
  do {
    sched_yield();
    // Others want the core: who sleeps gets it back sooner than who looks around.
    const Nanos now = steady.now();
    if (now - last > kLookout) crowded_until = now + kCrowded;
    last = now;
    for (Lookout* lookout : lookouts) {
      if (lookout->has_work()) return true;
    }
    {
      MutexLock lock(mutex);
      if (!posted.empty() || stopping) return true;
    }
    if (has_polled_lately()) continue;
    last = steady.now();
    if (poll(0)) {
      dispatch();
      return true;
    }
  } while (last < until);
  return false;
}

bool FdLoop::State::poll(Nanos deadline) {
  polled_at = last;
  return poller.wait(last, deadline);
}

// True: a lookout has work.
bool FdLoop::State::begin_sleep() {
  bool has_work = false;
  for (Lookout* lookout : lookouts) has_work |= lookout->begin_sleep();
  return has_work;
}

void FdLoop::State::end_sleep() {
  for (Lookout* lookout : lookouts) lookout->end_sleep();
}

void FdLoop::State::wait_for_work(bool busy) {
  if (!busy && look_for_work()) return;
  if (busy && has_polled_lately()) return;
  const bool has_begun = !busy;
  if (has_begun) busy = begin_sleep();
  {
    MutexLock lock(mutex);
    busy = busy || !posted.empty() || stopping;
    sleeping = !busy;
  }
  has_heard = has_heard && busy;
  poll(busy ? 0 : timers.next_due());
  if (!busy) {
    MutexLock lock(mutex);
    sleeping = false;
  }
  if (has_begun) end_sleep();
  last = steady.now();
  dispatch();
}

void FdLoop::State::dispatch() {
  poller.dispatch([this](const std::function<void()>& on_ready) {
    has_heard = true;
    timed(on_ready, [] { return "what watches a descriptor"; });
  });
}

void FdLoop::State::run_task(Task& task) {
  timed(
      [&task] {
        task();
        task.reset();
      },
      [&task] { return task.type_name(); });
}

void FdLoop::State::destroy_left() {
  // Objects that these own may call the loop when they go, as on its thread: each is emptied before its content is
  // destroyed.
  owner = std::this_thread::get_id();
  const ReserveScope scope(reserve.get());
  TaskQueue left;
  {
    MutexLock lock(mutex);
    left.swap(posted);
  }
  while (!left.empty()) left.pop();
  timers.clear();
  std::exchange(idle_checks, {}).clear();
  lookouts.clear();
  poller.clear();
  owner = std::thread::id();
}

FdLoop::FdLoop(std::string name, ThreadHooks hooks, std::shared_ptr<Reserve> reserve)
    : state_(std::make_unique<State>(std::move(name), std::move(hooks), std::move(reserve))) {}

FdLoop::~FdLoop() { stop(); }

void FdLoop::start() {
  MutexLock lock(state_->mutex);
  if (state_->stopping || state_->thread.joinable()) {
    fail(Status::kInvalidState, "loop \"{}\" was started before", state_->name);
  }
  state_->thread = start_thread(state_->name, state_->hooks, [state = state_.get()] {
    state->owner = std::this_thread::get_id();
    state->run();
    state->owner = std::thread::id();
  });
}

void FdLoop::set_watchdog(Watchdog watchdog) { state_->watchdog = std::move(watchdog); }

void FdLoop::set_on_failure(std::function<void(Error)> on_failure) { state_->on_failure = std::move(on_failure); }

void FdLoop::stop() {
  std::thread thread;
  {
    MutexLock lock(state_->mutex);
    if (std::exchange(state_->stopping, true)) return;
    thread = std::move(state_->thread);
  }
  state_->poller.wake();
  if (thread.joinable()) thread.join();
  state_->destroy_left();
}

// A refused task is destroyed after the lock is gone.
template <typename Push>
bool FdLoop::State::post(Push&& push) {
  bool wake = false;
  {
    MutexLock lock(mutex);
    if (stopping) return false;
    push(posted);
    wake = std::exchange(sleeping, false);
  }
  if (wake) poller.wake();
  return true;
}

bool FdLoop::post(Task task) {
  const ReserveScope scope(state_->reserve ? state_->reserve.get() : current_reserve());
  return state_->post([&task](TaskQueue& queue) { queue.push(std::move(task)); });
}

bool FdLoop::post(TaskPlace& place, Task task) noexcept {
  return state_->post([&place, &task](TaskQueue& queue) { queue.push(place, std::move(task)); });
}

Loop::TimerId FdLoop::start_timer(Nanos when, Task task) {
  assert(state_->may_touch());
  return state_->timers.add(when, std::move(task));
}

void FdLoop::start_timer(TaskPlace& place, Nanos when, Task task) noexcept {
  assert(state_->may_touch());
  state_->timers.add(place, when, std::move(task));
}

void FdLoop::cancel_timer(TimerId id) {
  assert(state_->may_touch());
  state_->timers.cancel(id);
}

const Clock& FdLoop::clock() const { return state_->steady; }

bool FdLoop::is_current() const { return state_->owner == std::this_thread::get_id(); }

void FdLoop::watch(int fd, std::function<void()> on_readable, std::function<void()> on_writable) {
  assert(state_->may_touch());
  state_->poller.watch(fd, std::move(on_readable), std::move(on_writable));
}

void FdLoop::await_writable(int fd, bool is_awaited) noexcept {
  assert(state_->may_touch());
  state_->poller.await_writable(fd, is_awaited);
}

void FdLoop::unwatch(int fd) {
  assert(state_->may_touch());
  state_->poller.unwatch(fd);
}

uint64_t FdLoop::add_idle_check(std::function<bool()> check) {
  assert(state_->may_touch());
  const uint64_t id = state_->next_idle_check++;
  state_->idle_checks.push_back({id, std::make_shared<std::function<bool()>>(std::move(check))});
  return id;
}

void FdLoop::remove_idle_check(uint64_t id) {
  assert(state_->may_touch());
  for (State::IdleCheck& check : state_->idle_checks) {
    if (check.id == id) std::exchange(check.check, nullptr).reset();
  }
}

void FdLoop::add_lookout(Lookout& lookout) {
  assert(state_->may_touch());
  state_->lookouts.push_back(&lookout);
}

void FdLoop::remove_lookout(Lookout& lookout) {
  assert(state_->may_touch());
  std::erase(state_->lookouts, &lookout);
}

Nanos FdLoop::longest_task() const { return state_->longest; }

}  // namespace distag
