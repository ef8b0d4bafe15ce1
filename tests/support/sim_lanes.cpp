#include "support/sim_lanes.h"

#include <fmt/format.h>

#include <new>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/host_code.h"

namespace distag::sim {
namespace {

// Puts a value back on every way out.
template <typename T>
class Restore {
 public:
  Restore(T& place, T value) : place_(place), before_(std::exchange(place, value)) {}
  ~Restore() { place_ = before_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& place_;
  const T before_;
};

// Anything else that a task throws is a defect, which ends the simulation.
bool is_shortage(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (...) {
    return current_error().status() == Status::kOutOfMemory;
  }
}

class HostCodeGoesTo {
 public:
  explicit HostCodeGoesTo(Executor* executor) : before_(exchange_host_code_executor(executor)) {}
  ~HostCodeGoesTo() { exchange_host_code_executor(before_); }
  HostCodeGoesTo(const HostCodeGoesTo&) = delete;
  HostCodeGoesTo& operator=(const HostCodeGoesTo&) = delete;

 private:
  Executor* const before_;
};

}  // namespace

Nanos SimHostClock::now() const {
  const Nanos passed = world_.now() - since_;
  return shown_ + (rate_ == 1 ? passed : static_cast<Nanos>(static_cast<double>(passed) * rate_));
}

void SimHostClock::set(Nanos ahead, double rate) {
  shown_ = now() + ahead;
  since_ = world_.now();
  rate_ = rate;
}

Nanos SimHostClock::world_time(Nanos when) const {
  if (when == kNever) return kNever;
  if (rate_ == 1) return since_ + (when - shown_);
  if (when <= now()) return world_.now();
  if (rate_ == 0) return kNever;
  return since_ + static_cast<Nanos>(static_cast<double>(when - shown_) / rate_) + 1;  // not a moment too early
}

SimLoop::SimLoop(SimScheduler& scheduler, std::string name)
    : Lane(scheduler, std::move(name)), clock_(scheduler.clock()) {}

SimLoop::~SimLoop() { stop(); }

bool SimLoop::post(Task task) {
  if (stopped_) return false;
  if (queue_.size() >= queue_room_) {
    ask_for_memory();
    queue_room_ = 2 * queue_room_ + 1;
  }
  const MemoryScope own(nullptr);
  queue_.push_back({0, std::move(task)});
  return true;
}

bool SimLoop::post(TaskPlace& place, Task task) noexcept {
  if (stopped_) return false;
  const MemoryScope own(nullptr);
  place.put(std::move(task));
  queue_.push_back({0, Task(), &place});
  return true;
}

// Only tasks of its worker ask: the threads of others have memory of their own.
void SimLoop::ask_for_memory() const {
  if (memory_ != nullptr && current_memory() == memory_ && !memory_->ask()) throw std::bad_alloc();
}

Loop::TimerId SimLoop::start_timer(Nanos when, Task task) {
  if (!is_current()) throw std::logic_error("start_timer of loop \"" + name() + "\" is called from elsewhere");
  if (timers_.size() >= timer_room_) {
    ask_for_memory();
    timer_room_ = 2 * timer_room_ + 1;
  }
  return add_timer({when, std::move(task)});
}

void SimLoop::start_timer(TaskPlace& place, Nanos when, Task task) noexcept {
  if (stopped_) return;
  place.put(std::move(task));
  add_timer({when, Task(), &place});
}

Loop::TimerId SimLoop::add_timer(Timer timer) {
  const MemoryScope own(nullptr);
  const TimerId id = next_timer_++;
  if (!stopped_) schedule(id, timers_.emplace(id, std::move(timer)).first->second);
  return id;
}

void SimLoop::schedule(TimerId id, Timer& timer) {
  const Nanos when = clock_.world_time(timer.when);
  if (when == kNever) return;
  timer.event = scheduler_.at(when, [this, id = id] {
    timers_.at(id).is_due = true;
    queue_.push_back({id, Task()});
  });
}

void SimLoop::set_clock(Nanos ahead, double rate) {
  clock_.set(ahead, rate);
  for (auto& [id, timer] : timers_) {
    if (timer.is_due) continue;
    scheduler_.cancel(timer.event);
    schedule(id, timer);
  }
}

void SimLoop::cancel_timer(TimerId id) {
  if (!is_current()) throw std::logic_error("cancel_timer of loop \"" + name() + "\" is called from elsewhere");
  auto node = timers_.extract(id);
  if (!node) return;
  scheduler_.cancel(node.mapped().event);
  if (node.mapped().place != nullptr) const Task unrun = node.mapped().place->take();
}

const Clock& SimLoop::clock() const { return clock_; }

bool SimLoop::is_current() const { return scheduler_.current_ == this && scheduler_.current_fiber_ == nullptr; }

void SimLoop::run(Task task) {
  const Restore<const Lane*> lane(scheduler_.current_, this);
  const Restore<Fiber*> fiber(scheduler_.current_fiber_, nullptr);
  const HostCodeGoesTo host(host_code());
  const MemoryScope scope(memory_);
  run_or_fail(task);
  task.reset();
}

void SimLoop::run_or_fail(Task& task) {
  try {
    task();
  } catch (...) {
    if (memory_ == nullptr || !is_shortage(std::current_exception())) throw;
    on_failure_(current_error());
  }
}

void SimLoop::stop() {
  stopped_ = true;
  run([this] {
    while (!queue_.empty()) {
      Entry unrun = std::move(queue_.front());
      queue_.pop_front();
      if (unrun.place != nullptr) unrun.task = unrun.place->take();
    }
    while (!timers_.empty()) cancel_timer(timers_.begin()->first);
  });
}

bool SimLoop::is_ready() const { return !queue_.empty(); }

void SimLoop::run_one() {
  Entry entry = std::move(queue_.front());
  queue_.pop_front();
  if (entry.timer != 0) {
    auto node = timers_.extract(entry.timer);
    if (!node) return;  // cancelled after it was due
    entry.task = std::move(node.mapped().task);
    entry.place = node.mapped().place;
  }
  if (entry.place != nullptr) entry.task = entry.place->take();
  run(std::move(entry.task));
}

std::string SimLoop::describe() const { return fmt::format("{} tasks, {} timers", queue_.size(), timers_.size()); }

SimExecutor::SimExecutor(SimScheduler& scheduler, std::string name) : Lane(scheduler, std::move(name)) {}

SimExecutor::~SimExecutor() { stop(); }

bool SimExecutor::post(Task task) {
  if (stopped_) return false;
  if (memory_ != nullptr && current_memory() == memory_ && !memory_->ask()) throw std::bad_alloc();
  const MemoryScope own(nullptr);
  tasks_.push_back(std::move(task));
  return true;
}

size_t SimExecutor::waiting() const { return tasks_.size(); }

void SimExecutor::stop() {
  stopped_ = true;
  while (!tasks_.empty()) {
    const Task unrun = std::move(tasks_.back());
    tasks_.pop_back();
  }
  while (!order_.empty()) {
    Fiber* fiber = order_.back();
    fibers_.at(fiber).aborted = true;
    std::erase_if(scheduler_.resumable_, [fiber](const auto& waiting) { return waiting->fiber == fiber; });
    resume(fiber);
  }
}

bool SimExecutor::is_ready() const { return !tasks_.empty(); }

void SimExecutor::run_one() {
  ++begun_;
  const size_t pick = scheduler_.below(tasks_.size());
  auto fiber = scheduler_.take_fiber();
  fiber->assign(std::move(tasks_[pick]));
  tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(pick));
  Fiber* begun = fiber.get();
  order_.push_back(begun);
  fibers_.emplace(begun, Running{std::move(fiber), false});
  resume(begun);
}

void SimExecutor::resume(Fiber* fiber) {
  const Restore<const Lane*> lane(scheduler_.current_, this);
  const Restore<SimExecutor*> pool(scheduler_.current_pool_, this);
  const Restore<Fiber*> current(scheduler_.current_fiber_, fiber);
  const HostCodeGoesTo host(host_code());
  std::exception_ptr thrown;
  try {
    const MemoryScope scope(memory_);
    fiber->resume();
  } catch (...) {
    thrown = std::current_exception();
  }
  if (fiber->is_idle()) {
    std::erase(order_, fiber);
    auto node = fibers_.extract(fiber);
    const bool aborted = node.mapped().aborted;
    scheduler_.give_fiber(std::move(node.mapped().fiber));
    if (aborted) return;  // it threw because its wait was ended
  }
  if (thrown && memory_ != nullptr && is_shortage(thrown)) return;
  if (thrown) std::rethrow_exception(thrown);
}

bool SimExecutor::is_aborted(const Fiber* fiber) const {
  const auto found = fibers_.find(const_cast<Fiber*>(fiber));
  return found != fibers_.end() && found->second.aborted;
}

std::string SimExecutor::describe() const {
  return fmt::format("{} tasks not begun, {} waiting inside", tasks_.size(), fibers_.size());
}

}  // namespace distag::sim
