#include "base/pool.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/lead.h"
#include "base/mutex.h"
#include "base/parker.h"
#include "base/pool_place.h"
#include "base/process.h"
#include "base/reserve.h"

namespace distag {

// A pool whose threads can leave their places.
class PoolPlaces {
 public:
  virtual bool leave_place() noexcept = 0;
  virtual void come_back() = 0;

 protected:
  ~PoolPlaces() = default;
};

// Completes at the end of what a thread waits for, or earlier to call that thread out of its wait.
using WakeUp = std::shared_ptr<Future<Unit>>;

// The threads that can be called out of their waits, in the order in which those began. At most one is called at a
// time.
class PoolWaiters {
 public:
  explicit PoolWaiters(size_t most) { all_.reserve(most); }

  void add(const WakeUp& wake_up) noexcept { all_.push_back(wake_up); }
  void remove(const WakeUp& wake_up) noexcept {
    std::erase(all_, wake_up);
    if (called_ == wake_up) called_ = nullptr;
  }
  // Calls the thread whose wait began last: it is the likeliest to wait for just what finds no thread. The caller
  // completes the result without a lock. nullptr: a thread was called before, or none waits.
  WakeUp call() noexcept {
    if (called_ != nullptr || all_.empty()) return nullptr;
    called_ = all_.back();
    has_progress_ = false;
    return called_;
  }
  void note_taken() noexcept { has_progress_ = true; }
  // Whether a task was taken since the call, or since the last question: then the queued ones came later.
  bool has_progress() noexcept { return std::exchange(has_progress_, false); }
  void end_call() noexcept { called_ = nullptr; }
  void replace(const WakeUp& before, const WakeUp& after) noexcept {
    std::replace(all_.begin(), all_.end(), before, after);
  }

 private:
  std::vector<WakeUp> all_;
  WakeUp called_;
  bool has_progress_ = false;
};

namespace {

// Idle threads kept beyond thread_count, so that calls that nest again and again do not make threads each time.
constexpr size_t kSpareThreads = 8;

// How long tasks may stay queued while all threads wait and none can be made, before a wait fails for them. Begins anew
// with each task that is taken.
constexpr Nanos kLackPatience = kSecond;

WakeUp wake_up_at_end_of(Completion& completion) {
  auto wake_up = Future<Unit>::make();
  completion.on_done([wake_up] { wake_up->complete(Unit{}); });
  return wake_up;
}

thread_local PoolPlaces* t_places = nullptr;  // for the calling thread
thread_local uint32_t t_places_in = 0;        // process_generation(): in a forked child t_places is the parent's
thread_local bool t_has_left = false;         // has left its place while it runs code that may block

}  // namespace

// Every thread is idle (parked in `idle`), in a wait (counted in `waits`), or active. Only active threads take tasks,
// and only while there are at most thread_count of them; a thread that comes back from a wait may exceed that for the
// rest of its task.
struct Pool::State final : WaitPolicy, PoolPlaces, std::enable_shared_from_this<Pool::State> {
  struct Worker {
    std::thread thread;
    Parker parker;
  };

  State(std::string name_, size_t thread_count_, ThreadHooks hooks_, std::shared_ptr<Reserve> reserve_)
      : name(std::move(name_)),
        thread_count(std::clamp<size_t>(thread_count_, 1, kMaxThreads)),
        hooks(std::move(hooks_)),
        reserve(std::move(reserve_)) {}

  void check() override {
    MutexLock lock(mutex);
    check_locked();
  }
  bool wait(Completion& completion, Nanos timeout) override;
  void give_up_thread() noexcept override;
  bool leave_place() noexcept override;
  void come_back() override;

  void check_locked() const REQUIRES(mutex);
  void leave(const WakeUp& wake_up);
  void come_back(const WakeUp& wake_up);
  WakeUp watch(Completion& completion, Nanos deadline, const WakeUp& called);
  std::shared_ptr<Worker> fill_place() REQUIRES(mutex);
  void add_thread() REQUIRES(mutex);
  void run(const std::shared_ptr<Worker>& self);
  bool rest(const std::shared_ptr<Worker>& self) REQUIRES(mutex);
  void retire(const std::shared_ptr<Worker>& self) REQUIRES(mutex);

  const std::string name;
  const size_t thread_count;
  const ThreadHooks hooks;
  const std::shared_ptr<Reserve> reserve;  // nullptr: none

  mutable Mutex mutex;
  std::deque<Task> queue GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Worker>> workers GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Worker>> idle GUARDED_BY(mutex);  // the last one is woken first: its caches are warm
  std::thread retired GUARDED_BY(mutex);                        // the last one, not joined yet
  size_t active GUARDED_BY(mutex) = 0;
  size_t waits GUARDED_BY(mutex) = 0;
  PoolWaiters waiting GUARDED_BY(mutex) = PoolWaiters(kMaxThreads);
  size_t begun GUARDED_BY(mutex) = 0;
  size_t living GUARDED_BY(mutex) = 0;  // threads that may still run a task
  bool stopped GUARDED_BY(mutex) = false;
  const std::shared_ptr<Future<Unit>> ended = Future<Unit>::make();  // stopped, and no thread lives
};

void Pool::State::check_locked() const {
  if (waits + 1 < kMaxThreads) return;
  fail(Status::kOverloaded,
       "{} of the {} threads of pool \"{}\" wait already; answer later by a deferred reply instead of waiting in a "
       "function",
       waits, kMaxThreads, name);
}

// Finds a thread for the next task, if there is one and a place is free. The returned thread must be unparked once the
// lock is released. Throws OUT_OF_MEMORY when no thread is left that could run it.
std::shared_ptr<Pool::State::Worker> Pool::State::fill_place() {
  if (stopped || queue.empty() || active >= thread_count) return nullptr;
  if (!idle.empty()) {
    auto worker = std::move(idle.back());
    idle.pop_back();
    ++active;
    return worker;
  }
  if (workers.size() >= kMaxThreads) return nullptr;
  try {
    add_thread();
  } catch (...) {
    if (active == 0) throw;
  }
  return nullptr;
}

// Starts an active thread, which looks for tasks first. Throws OUT_OF_MEMORY.
void Pool::State::add_thread() {
  auto worker = std::make_shared<Worker>();
  workers.push_back(worker);
  try {
    // The thread needs the lock before it does anything, so it sees `thread` set.
    worker->thread = start_thread(fmt::format("{}-{}", name, workers.size()), hooks,
                                  [state = shared_from_this(), worker] { state->run(worker); });
  } catch (...) {
    workers.pop_back();
    throw;
  }
  ++active;
  ++living;
}

bool Pool::State::wait(Completion& completion, Nanos timeout) {
  if (completion.is_done() || timeout == 0) return completion.is_done();
  if (t_has_left) return lead_or_park(completion, timeout);
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  WakeUp wake_up = wake_up_at_end_of(completion);
  leave(wake_up);
  try {
    while (lead_or_park(*wake_up, time_left(deadline)) && !completion.is_done()) {
      wake_up = watch(completion, deadline, wake_up);
    }
  } catch (...) {
    come_back(wake_up);
    throw;
  }
  come_back(wake_up);
  return completion.is_done();
}

// Gives up the place for a wait.
void Pool::State::leave(const WakeUp& wake_up) {
  std::shared_ptr<Worker> successor;
  {
    MutexLock lock(mutex);
    check_locked();
    --active;
    try {
      successor = fill_place();
    } catch (...) {
      ++active;
      throw;
    }
    ++waits;
    waiting.add(wake_up);
  }
  if (successor) successor->parker.unpark();
}

// Back to work after a wait.
void Pool::State::come_back() { come_back(nullptr); }

void Pool::State::come_back(const WakeUp& wake_up) {
  MutexLock lock(mutex);
  --waits;
  ++active;
  if (wake_up != nullptr) waiting.remove(wake_up);
}

// Runs on the thread that was called because all threads wait and none is left for the queue. A wait that ends soon
// frees a thread for the queue; if not, there may be room for a new one by then. Else this wait fails, unless the queue
// went on meanwhile. Returns the next wake-up.
WakeUp Pool::State::watch(Completion& completion, Nanos deadline, const WakeUp& called) {
  WakeUp next = wake_up_at_end_of(completion);
  std::shared_ptr<Worker> successor;
  for (bool is_called = true; is_called;) {
    const Nanos left = time_left(deadline);
    lead_or_park(completion, left < 0 ? kLackPatience : std::min(left, kLackPatience));
    MutexLock lock(mutex);
    try {
      if (!completion.is_done() && time_left(deadline) != 0) successor = fill_place();
      is_called = false;
    } catch (...) {
      if (waiting.has_progress()) continue;
      waiting.end_call();
      throw current_error().add_context(fmt::format("all threads of pool \"{}\" wait, and tasks wait for one", name));
    }
    waiting.end_call();
    waiting.replace(called, next);
  }
  if (successor) successor->parker.unpark();
  return next;
}

// Counts as a wait that never ends.
void Pool::State::give_up_thread() noexcept {
  if (t_has_left) return;
  std::shared_ptr<Worker> successor;
  WakeUp called;
  {
    MutexLock lock(mutex);
    --active;
    ++waits;
    try {
      successor = fill_place();
    } catch (...) {
      called = waiting.call();
    }
  }
  if (successor) successor->parker.unpark();
  if (called) called->complete(Unit{});
}

// False where no other thread would be left to run anything.
bool Pool::State::leave_place() noexcept {
  {
    MutexLock lock(mutex);
    if (waits + 1 >= kMaxThreads) return false;
  }
  give_up_thread();
  return true;
}

PoolPlaceLeft::PoolPlaceLeft() noexcept {
  t_has_left = t_places != nullptr && t_places_in == process_generation() && t_places->leave_place();
}

PoolPlaceLeft::~PoolPlaceLeft() {
  if (!std::exchange(t_has_left, false)) return;
  t_places->come_back();
}

void Pool::State::run(const std::shared_ptr<Worker>& self) {
  const ReserveScope scope(reserve.get());
  t_places = this;
  t_places_in = process_generation();
  WaitPolicy* const before = exchange_wait_policy(this);
  MutexLock lock(mutex);
  do {
    while (!stopped && !queue.empty() && active <= thread_count) {
      Task task = std::move(queue.front());
      queue.pop_front();
      waiting.note_taken();
      ++begun;
      lock.unlock();
      run_guarded(std::move(task));
      lock.lock();
      --begun;
    }
  } while (rest(self));
  const bool is_last = --living == 0 && stopped;
  lock.unlock();
  if (is_last) ended->complete(Unit{});
  exchange_wait_policy(before);
}

// Parks until there is a task to look for; false when the thread has to end.
bool Pool::State::rest(const std::shared_ptr<Worker>& self) {
  --active;
  if (stopped) return false;
  if (idle.size() >= thread_count + kSpareThreads) {
    retire(self);
    return false;
  }
  idle.push_back(self);
  mutex.unlock();
  // The thread that unparks this one has taken it from `idle` and counted it as active.
  self->parker.park();
  mutex.lock();
  return true;
}

// Leaves the handle of this thread to the next one that retires, or to stop().
void Pool::State::retire(const std::shared_ptr<Worker>& self) {
  std::erase(workers, self);
  std::thread previous = std::exchange(retired, std::move(self->thread));
  mutex.unlock();
  if (previous.joinable()) previous.join();
  mutex.lock();
}

Pool::Pool(std::string name, size_t thread_count, ThreadHooks hooks, std::shared_ptr<Reserve> reserve)
    : state_(std::make_shared<State>(std::move(name), thread_count, std::move(hooks), std::move(reserve))) {}

Pool::~Pool() { stop(); }

void Pool::start() {
  MutexLock lock(state_->mutex);
  if (!state_->stopped && state_->workers.empty()) state_->add_thread();
}

bool Pool::post(Task task) {
  const ReserveScope scope(state_->reserve ? state_->reserve.get() : current_reserve());
  std::shared_ptr<State::Worker> worker;
  WakeUp called;
  {
    MutexLock lock(state_->mutex);
    // A refused task is the caller's parameter, destroyed after the lock is gone.
    if (state_->stopped) return false;
    state_->queue.push_back(std::move(task));
    try {
      worker = state_->fill_place();
    } catch (...) {
      if (state_->waits == 0) {
        task = std::move(state_->queue.back());
        state_->queue.pop_back();
        throw;
      }
      called = state_->waiting.call();  // who comes back from a wait takes the task
    }
  }
  if (worker) worker->parker.unpark();
  if (called) called->complete(Unit{});
  return true;
}

size_t Pool::waiting() const {
  MutexLock lock(state_->mutex);
  return state_->queue.size();
}

size_t Pool::running() const {
  MutexLock lock(state_->mutex);
  return state_->begun;
}

bool Pool::stop(Nanos timeout) {
  bool lives = false;
  {
    MutexLock lock(state_->mutex);
    state_->stopped = true;
    state_->active += state_->idle.size();
    for (const auto& worker : std::exchange(state_->idle, {})) worker->parker.unpark();
    lives = state_->living > 0;
  }
  // Destroyed one by one: a second queue would need memory.
  for (;;) {
    Task dropped;
    MutexLock lock(state_->mutex);
    if (state_->queue.empty()) break;
    dropped = std::move(state_->queue.front());
    state_->queue.pop_front();
  }
  if (lives && !distag::wait(*state_->ended, timeout)) return false;
  std::vector<std::shared_ptr<State::Worker>> workers;
  {
    MutexLock lock(state_->mutex);
    workers.swap(state_->workers);
  }
  for (const auto& worker : workers) worker->thread.join();
  // Taken only now: a thread that was ending may have left its handle meanwhile.
  std::thread retired;
  {
    MutexLock lock(state_->mutex);
    retired = std::move(state_->retired);
  }
  if (retired.joinable()) retired.join();
  return true;
}

}  // namespace distag
