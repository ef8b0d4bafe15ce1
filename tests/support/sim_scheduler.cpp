#include "support/sim_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "support/sim_lanes.h"

namespace distag::sim {

class SimScheduler::Policy final : public WaitPolicy {
 public:
  explicit Policy(SimScheduler& scheduler) : scheduler_(scheduler) {}
  void check() override { scheduler_.check_wait(); }
  bool wait(Completion& completion, Nanos timeout) override { return scheduler_.wait(completion, timeout); }

 private:
  SimScheduler& scheduler_;
};

Lane::Lane(SimScheduler& scheduler, std::string name) : scheduler_(scheduler), name_(std::move(name)) {
  scheduler_.lanes_.push_back(this);
}

Lane::~Lane() { std::erase(scheduler_.lanes_, this); }

SimScheduler::SimScheduler(uint64_t seed)
    : seed_(seed), random_(seed * 0x9E3779B97F4A7C15u + 1), policy_(std::make_unique<Policy>(*this)) {
  previous_policy_ = exchange_wait_policy(policy_.get());
  host_threads_ = std::make_unique<SimExecutor>(*this, "host threads");
}

SimScheduler::~SimScheduler() {
  host_threads_.reset();
  events_.clear();
  exchange_wait_policy(previous_policy_);
}

bool SimScheduler::chance(double probability) {
  if (probability <= 0) return false;
  return static_cast<double>(random_.next() >> 11) * 0x1.0p-53 < probability;
}

uint64_t SimScheduler::at(Nanos when, Task event) {
  const MemoryScope own(nullptr);
  const uint64_t id = next_event_++;
  events_.emplace(std::pair(when, id), std::move(event));
  event_times_.emplace(id, when);
  return id;
}

void SimScheduler::cancel(uint64_t event) {
  const auto time = event_times_.find(event);
  if (time == event_times_.end()) return;
  const Task unrun = std::move(events_.extract({time->second, event}).mapped());
  event_times_.erase(time);
}

void SimScheduler::fire_events() {
  while (!events_.empty() && events_.begin()->first.first <= clock_.now_) {
    auto node = events_.extract(events_.begin());
    event_times_.erase(node.key().second);
    node.mapped()();
  }
}

bool SimScheduler::step() {
  ++steps_;
  fire_events();
  std::vector<Lane*> ready;
  ready.reserve(lanes_.size());
  for (Lane* lane : lanes_) {
    if (!lane->is_frozen() && lane->is_ready() && !lane->is_busy(now())) ready.push_back(lane);
  }
  std::vector<size_t> resumable;
  for (size_t i = 0; i < resumable_.size(); ++i) {
    if (!resumable_[i]->pool->is_frozen()) resumable.push_back(i);
  }
  const size_t count = ready.size() + resumable.size();
  if (count == 0) {
    if (events_.empty()) return false;
    clock_.now_ = std::max(clock_.now_, events_.begin()->first.first);
    return true;
  }
  clock_.now_ += static_cast<Nanos>(below(kMicrosecond));
  const size_t pick = below(count);
  if (pick < ready.size()) {
    run_lane(*ready[pick]);
  } else {
    const size_t index = resumable[pick - ready.size()];
    const std::shared_ptr<Waiting> waiting = resumable_[index];
    resumable_.erase(resumable_.begin() + static_cast<std::ptrdiff_t>(index));
    waiting->pool->resume(waiting->fiber);
  }
  if (observer_) observer_();
  return true;
}

void SimScheduler::run_lane(Lane& lane) {
  if (longest_task_ != 0) {
    lane.keep_busy_until(now() + between(0, longest_task_));
    at(now() + longest_task_, [] {});  // by then the lane is free
  }
  lane.run_one();
}

bool SimScheduler::run_until(const std::function<bool()>& condition, Nanos timeout) {
  const Nanos deadline = deadline_after(now(), timeout);
  const Nanos limit = deadline_after(now(), longest_wait_);
  // An event of its own, so that the clock stops at the deadline and not at whatever comes after it.
  const uint64_t alarm = deadline == kNever ? 0 : at(deadline, [] {});
  while (!condition()) {
    if (now() >= deadline) return false;
    if (deadline == kNever && now() > limit) fail_stuck("a wait without end takes too long");
    // The last event may have made the condition true.
    if (!step() && !condition() && now() < deadline) fail_stuck("nothing is left that could run");
  }
  cancel(alarm);
  return true;
}

void SimScheduler::run_for(Nanos duration) {
  run_until([] { return false; }, duration);
}

std::shared_ptr<Future<Unit>> SimScheduler::spawn(Task task) {
  auto ended = Future<Unit>::make();
  host_threads_->post_or_drop([ended, task = std::move(task)]() mutable {
    try {
      task();
      ended->complete(Unit{});
    } catch (...) {
      ended->fail(current_error());
    }
  });
  return ended;
}

void SimScheduler::stop_host_threads() { host_threads_->stop(); }

void SimScheduler::check_wait() const {
  if (current_ != nullptr && current_fiber_ == nullptr) {
    fail(Status::kInvalidState, "a task of loop \"{}\" may not wait", current_->name());
  }
}

bool SimScheduler::wait(Completion& completion, Nanos timeout) {
  check_wait();
  if (completion.is_done() || timeout == 0) return completion.is_done();
  if (current_fiber_ != nullptr) return wait_in_fiber(completion, deadline_after(now(), timeout));
  run_until([&completion] { return completion.is_done(); }, timeout);
  return completion.is_done();
}

bool SimScheduler::wait_in_fiber(Completion& completion, Nanos deadline) {
  SimExecutor* pool = current_pool_;
  if (pool->is_aborted(current_fiber_)) fail(Status::kCancelled, "the simulation of this thread has ended");
  const MemoryScope own(nullptr);
  auto waiting = std::make_shared<Waiting>(Waiting{pool, current_fiber_, false});
  auto wake = [this, weak = std::weak_ptr<Waiting>(waiting)] {
    const MemoryScope none(nullptr);
    const auto alive = weak.lock();
    if (!alive || std::exchange(alive->resumable, true)) return;
    resumable_.push_back(alive);
  };
  const uint64_t alarm = deadline == kNever ? 0 : at(deadline, wake);
  completion.on_done(wake);
  current_fiber_->pause();
  cancel(alarm);
  std::erase(resumable_, waiting);
  if (pool->is_aborted(waiting->fiber) && !completion.is_done()) {
    fail(Status::kCancelled, "the simulation of this thread has ended");
  }
  return completion.is_done();
}

std::unique_ptr<Fiber> SimScheduler::take_fiber() {
  if (free_fibers_.empty()) return std::make_unique<Fiber>();
  auto fiber = std::move(free_fibers_.back());
  free_fibers_.pop_back();
  return fiber;
}

void SimScheduler::give_fiber(std::unique_ptr<Fiber> fiber) { free_fibers_.push_back(std::move(fiber)); }

std::string SimScheduler::dump() const {
  std::string text = fmt::format("seed {}, step {}, {:.6f} s, {} events ahead", seed_, steps_,
                                 static_cast<double>(now()) / static_cast<double>(kSecond), events_.size());
  for (const Lane* lane : lanes_) {
    text += fmt::format("\n  {}{}: {}", lane->name(), lane->is_frozen() ? " (frozen)" : "", lane->describe());
  }
  return text;
}

void SimScheduler::fail_stuck(const std::string& why) const { throw SimStuck(why + "\n" + dump()); }

}  // namespace distag::sim
