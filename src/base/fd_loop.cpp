#include "base/fd_loop.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cassert>
#include <ctime>
#include <memory>
#include <utility>
#include <vector>

#include "base/fd_loop_state.h"
#include "base/parker.h"

namespace distag {
namespace {

// How long a loop that ran out of work goes on looking for more before it sleeps: to wake a sleeping core costs as much
// as a small message does, and an answer often comes within this time.
constexpr Nanos kLookout = 60 * kMicrosecond;
// How often a loop with lookouts asks the system whether descriptors are readable: to ask costs more than to look.
constexpr Nanos kPollGap = 5 * kMicrosecond;
// How long a task without a waiter may be put off.
constexpr Nanos kSoon = kMillisecond;
// How long memory has to do without what the reserve lacks: others may need it more.
constexpr Nanos kRefillPause = 10 * kMillisecond;
// How long a loop sleeps at once after its core was taken while it looked for work; but not within a message.
constexpr Nanos kCrowded = 10 * kMillisecond;

// Page faults of the calling thread since its start, and its time of the processor.
int64_t faults_of_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}
Nanos time_of_thread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Nanos>(time.tv_sec) * kSecond + time.tv_nsec;
}

// Since `begin`. To count faults costs as much as a short task, for which they do not matter.
FdLoop::Cost cost_since(const FdLoop::Cost& begin) {
  const Nanos taken = time_of_thread() - begin.taken;
  return {taken, taken < kMillisecond ? 0 : faults_of_thread() - begin.page_faults};
}

}  // namespace

template <typename Call, typename Describe>
void FdLoop::State::timed(Call&& call, Describe&& what) {
  const char* const watched = watchdog ? what() : nullptr;
  const Cost begin = watched == nullptr ? Cost{} : Cost{time_of_thread(), faults_of_thread()};
  try {
    call();
  } catch (...) {
    if (on_failure) on_failure(current_error());
  }
  if (watched != nullptr) watchdog(watched, cost_since(begin));
  const Nanos end = steady.now();
  if (end - last > longest.load(std::memory_order_relaxed)) longest.store(end - last, std::memory_order_relaxed);
  last = end;
}

bool FdLoop::State::are_descriptors_due() const { return last - polled_at >= kLookout; }

bool FdLoop::State::has_polled_lately() const { return !lookouts.empty() && last - polled_at < kPollGap; }

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
  state_->poller.bell()->ring();
  if (thread.joinable()) thread.join();
  state_->destroy_left();
}

// A refused task is destroyed after the lock is gone.
template <typename Push>
bool FdLoop::State::post(Push&& push, Urgency urgency) {
  // Before the task is there: whoever sees the task and merely looks for work leaves it to the thread that posts it.
  const bool is_alone = waiting.load(std::memory_order_relaxed) == 0;
  if (urgency == Urgency::kByPoster && is_alone) is_wanted.store(true, std::memory_order_relaxed);
  std::optional<Seat> sleeper;
  {
    MutexLock lock(mutex);
    if (stopping) return false;
    push(posted);
    has_urgent = has_urgent || urgency != Urgency::kByPoster;
    if (urgency == Urgency::kNow) sleeper = take_sleeper();
    // To take the seat, or to go on after a sleep with it, needs the lock: no other thread touches the poller now.
    if (urgency == Urgency::kSoon && sleeping) poller.set_alarm(steady.now() + kSoon);
  }
  wake(sleeper);
  return true;
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
