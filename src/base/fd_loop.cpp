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

#include "base/loop_scopes.h"
#include "base/mutex.h"
#include "base/parker.h"
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
// How long a thread that waits tries to take the seat, and how long it runs the loop for others at most.
constexpr Nanos kSeatPatience = 5 * kMicrosecond;
constexpr Nanos kLongestLead = 2 * kMillisecond;
// How long a task that nobody waits for may wait.
constexpr Nanos kSoon = kMillisecond;
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

}  // namespace

struct FdLoop::State {
  // Of a task: a loop that sleeps is woken for it; the thread that posts it is about to run the loop; nobody waits for
  // it.
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
  void wake() noexcept;
  void run();
  void run_until_stopped();
  void lead_until(const Completion& awaited, Nanos deadline);
  void lead(const Completion& awaited, Nanos deadline);
  bool take_seat(const Completion& awaited);
  bool give_seat_back();
  bool leave_seat();
  bool can_be_left() const REQUIRES(mutex);
  void rest();
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
  bool are_descriptors_due() const { return last - polled_at >= kLookout; }
  bool has_polled_lately() const { return !lookouts.empty() && last - polled_at < kPollGap; }
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
  bool sleeping GUARDED_BY(mutex) = false;  // the seat is free, and who leaves work wakes the loop's thread
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

void FdLoop::State::run() {
  const RunScope scope(policy, reserve.get(), host_code);
  last = steady.now();
  run_until_stopped();
}

void FdLoop::State::run_until_stopped() {
  for (;;) {
    mend_reserve();
    try {
      if (!run_batch()) return;
      fire_timers();
      if (check_idle() || are_descriptors_due()) {
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

// As the loop's own thread does, until that is over, nothing is left to do, or it is somebody else's turn.
void FdLoop::State::lead_until(const Completion& awaited, Nanos deadline) {
  last = steady.now();
  const Nanos latest = std::min(last + kLongestLead, deadline);
  do {
    mend_reserve();
    try {
      if (!run_batch() || awaited.is_done()) return;
      fire_timers();
      const bool more = check_idle();
      if (awaited.is_done()) return;
      if (more || are_descriptors_due()) {
        look_at_descriptors();
      } else if (!look_for_work(&awaited)) {
        return;
      }
    } catch (...) {
      if (on_failure) on_failure(current_error());
    }
    last = steady.now();
  } while (!awaited.is_done() && last < latest);
}

// Nothing unless the seat can be had.
void FdLoop::State::lead(const Completion& awaited, Nanos deadline) {
  if (!take_seat(awaited)) return;
  leads.fetch_add(1, std::memory_order_relaxed);
  const RunScope scope(policy, reserve.get(), host_code);
  end_sleep();
  lead_until(awaited, deadline);
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
    has_urgent = false;
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

// A look around without a word to the system.
FdLoop::State::Sight FdLoop::State::look(const Completion* awaited) {
  for (Lookout* lookout : lookouts) {
    if (lookout->has_work()) return Sight::kWork;
  }
  if (awaited != nullptr && awaited->is_done()) return Sight::kEnd;
  MutexLock lock(mutex);
  if (has_urgent || stopping) return Sight::kWork;
  if (awaited == nullptr && is_wanted.load(std::memory_order_relaxed)) return Sight::kEnd;
  return posted.empty() ? Sight::kNothing : Sight::kWork;
}

// False when nothing came for a while, at the end of what is awaited, or when another thread is to do the rest. Gives
// its core away between looks. If it comes back late and there is nothing to do, others want the core: who sleeps gets
// it back sooner than who looks around.
bool FdLoop::State::look_for_work(const Completion* awaited) {
  if ((last < crowded_until || !has_heard) && !is_under_way()) return false;
  const Nanos until = std::min(last + kLookout, timers.next_due());
  do {
    sched_yield();
    const Nanos now = steady.now();
    const bool was_long_away = now - last > kLookout;
    last = now;
    const Sight sight = look(awaited);
    if (sight != Sight::kNothing) return sight == Sight::kWork;
    if (was_long_away) crowded_until = now + kCrowded;
    if (has_polled_lately()) continue;
    last = steady.now();
    if (poll()) {
      dispatch();
      return true;
    }
  } while (last < until);
  return last >= timers.next_due();
}

bool FdLoop::State::poll() {
  polled_at = last;
  return poller.look();
}

// While other work keeps coming: it must not keep them waiting.
void FdLoop::State::look_at_descriptors() {
  if (has_polled_lately() || !poll()) return;
  dispatch();
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
    state->loop_thread = std::this_thread::get_id();
    state->owner = std::this_thread::get_id();
    state->run();
    state->owner = std::thread::id();
  });
}

void FdLoop::set_host_code_executor(Executor* executor) { state_->host_code = executor; }

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
bool FdLoop::State::post(Push&& push, Urgency urgency) {
  // Before the task is there: whoever sees the task and merely looks for work leaves it to the thread that posts it.
  const bool is_alone = waiting.load(std::memory_order_relaxed) == 0;
  if (urgency == Urgency::kByPoster && is_alone) is_wanted.store(true, std::memory_order_relaxed);
  bool wake = false;
  {
    MutexLock lock(mutex);
    if (stopping) return false;
    push(posted);
    has_urgent = has_urgent || urgency != Urgency::kByPoster;
    if (urgency == Urgency::kNow) wake = std::exchange(sleeping, false);
    // Whoever takes the seat needs the lock first, so the poller is nobody's now.
    if (urgency == Urgency::kSoon && sleeping) poller.set_alarm(steady.now() + kSoon);
  }
  if (wake) poller.wake();
  return true;
}

void FdLoop::State::wake() noexcept {
  is_wanted.store(false, std::memory_order_relaxed);
  {
    MutexLock lock(mutex);
    if (posted.empty() || !std::exchange(sleeping, false)) return;
  }
  poller.wake();
}

bool FdLoop::post_soon(Task task) {
  const ReserveScope scope(state_->reserve ? state_->reserve.get() : current_reserve());
  return state_->post([&task](TaskQueue& queue) { queue.push(std::move(task)); }, State::Urgency::kSoon);
}

bool FdLoop::post_soon(TaskPlace& place, Task task) noexcept {
  return state_->post([&place, &task](TaskQueue& queue) { queue.push(place, std::move(task)); }, State::Urgency::kSoon);
}

bool FdLoop::post(Task task) {
  const ReserveScope scope(state_->reserve ? state_->reserve.get() : current_reserve());
  return state_->post([&task](TaskQueue& queue) { queue.push(std::move(task)); },
                      Lead::is_quiet_to(*this) ? State::Urgency::kByPoster : State::Urgency::kNow);
}

bool FdLoop::post(TaskPlace& place, Task task) noexcept {
  return state_->post([&place, &task](TaskQueue& queue) { queue.push(place, std::move(task)); },
                      Lead::is_quiet_to(*this) ? State::Urgency::kByPoster : State::Urgency::kNow);
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

void FdLoop::wake() noexcept { state_->wake(); }

bool FdLoop::lead(Completion& completion, Nanos timeout) {
  if (completion.is_done() || timeout == 0) return completion.is_done();
  const Nanos deadline = deadline_after(state_->steady.now(), timeout);
  const Waiting waiting(state_->waiting);
  if (waiting.is_alone()) state_->lead(completion, deadline);
  if (completion.is_done()) return true;
  state_->wake();
  return park_until_done(completion, time_left(deadline));
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

uint64_t FdLoop::leads() const { return state_->leads; }

Nanos FdLoop::longest_task() const { return state_->longest; }

}  // namespace distag
