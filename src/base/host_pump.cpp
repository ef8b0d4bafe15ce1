#include "base/host_pump.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/error.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/process_state.h"
#include "base/system_error.h"
#include "base/thread.h"

namespace distag {
namespace {

struct PumpList {
  HostPump* head = nullptr;
};
ProcessState<PumpList> pump_list;
std::atomic<size_t> list_size{0};  // includes the parent's in a forked child

}  // namespace

HostPump::HostPump() : generation_(process_generation()), poller_(std::this_thread::get_id()) {}

HostPump::~HostPump() {
  stop();
  if (fd_ >= 0) close(fd_);
}

void HostPump::enlist() {
  const ProcessState<PumpList>::Access list(pump_list);
  next_ = list->head;
  if (next_ != nullptr) next_->previous_ = this;
  list->head = this;
  list_size.fetch_add(1, std::memory_order_relaxed);
}

void HostPump::stop() {
  if (generation_ != process_generation()) return;
  std::vector<std::shared_ptr<Future<Unit>>> reached;
  {
    const ProcessState<PumpList>::Access list(pump_list);
    MutexLock lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    reached.swap(waiters_);
    if (!tasks_.empty()) clear_readable();
    if (previous_ != nullptr) previous_->next_ = next_;
    if (next_ != nullptr) next_->previous_ = previous_;
    if (list->head == this) list->head = next_;
    list_size.fetch_sub(1, std::memory_order_relaxed);
  }
  for (const auto& next : reached) next->complete(Unit{});
  // Destroyed one by one: a second queue would need memory, and this is a destructor's work.
  for (;;) {
    Task dropped;
    MutexLock lock(mutex_);
    if (tasks_.empty()) return;
    dropped = std::move(tasks_.front());
    tasks_.pop_front();
  }
}

bool HostPump::post(std::list<Task> tasks) {
  std::vector<std::shared_ptr<Future<Unit>>> reached;
  {
    MutexLock lock(mutex_);
    // Refused tasks are the caller's parameter, destroyed after the lock is gone.
    if (stopped_) return false;
    const bool was_empty = tasks_.empty();
    tasks_.splice(tasks_.end(), tasks);
    if (was_empty) mark_readable();
    for (Parker* watcher : watchers_) watcher->unpark();
    reached.swap(waiters_);
  }
  for (const auto& next : reached) next->complete(Unit{});
  return true;
}

void HostPump::add_waiter(std::shared_ptr<Future<Unit>> next) {
  {
    MutexLock lock(mutex_);
    if (!stopped_) {
      waiters_.push_back(std::move(next));
      return;
    }
  }
  next->complete(Unit{});
}

void HostPump::forget_waiter(const std::shared_ptr<Future<Unit>>& next) {
  MutexLock lock(mutex_);
  std::erase(waiters_, next);
}

bool HostPump::is_stopped() const {
  MutexLock lock(mutex_);
  return stopped_;
}

bool HostPump::is_running() const {
  MutexLock lock(mutex_);
  return depth_ > 0;
}

size_t HostPump::waiting() const {
  MutexLock lock(mutex_);
  return tasks_.size();
}

int HostPump::fd() {
  MutexLock lock(mutex_);
  if (fd_ < 0) {
    fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd_ < 0) throw system_error("the descriptor to poll cannot be made", "eventfd", errno);
    if (!tasks_.empty()) mark_readable();
  }
  return fd_;
}

bool HostPump::claim() {
  MutexLock lock(mutex_);
  if (depth_ > 0 && poller_ != std::this_thread::get_id()) return false;
  poller_ = std::this_thread::get_id();
  return true;
}

bool HostPump::take(Task& task) {
  MutexLock lock(mutex_);
  if (stopped_ || tasks_.empty() || poller_ != std::this_thread::get_id()) return false;
  task = std::move(tasks_.front());
  tasks_.pop_front();
  if (tasks_.empty()) clear_readable();
  ++depth_;
  return true;
}

bool HostPump::run_one() {
  Task task;
  if (!take(task)) return false;
  run_guarded(std::move(task));
  bool is_last = false;
  {
    MutexLock lock(mutex_);
    is_last = --depth_ == 0 && stopped_;
  }
  if (is_last) ended_->complete(Unit{});
  return true;
}

bool HostPump::runs_elsewhere() const {
  MutexLock lock(mutex_);
  return depth_ > 0 && poller_ != std::this_thread::get_id();
}

void HostPump::mark_readable() {
  const uint64_t one = 1;
  // Cannot fail: the counter is 0 or 1.
  if (fd_ >= 0) [[maybe_unused]]
    const ssize_t written = write(fd_, &one, sizeof one);
}

void HostPump::clear_readable() {
  uint64_t count = 0;
  if (fd_ >= 0) [[maybe_unused]]
    const ssize_t got = read(fd_, &count, sizeof count);
}

bool HostPump::any() { return list_size.load(std::memory_order_relaxed) != 0; }

std::vector<std::shared_ptr<HostPump>> HostPump::polled_here() {
  std::vector<std::shared_ptr<HostPump>> found;
  const ProcessState<PumpList>::Access list(pump_list);
  for (HostPump* pump = list->head; pump != nullptr; pump = pump->next_) {
    MutexLock lock(pump->mutex_);
    if (pump->poller_ != std::this_thread::get_id()) continue;
    // Empty when its last owner is just gone, and its destructor waits for the list.
    if (auto owned = pump->weak_from_this().lock()) found.push_back(std::move(owned));
  }
  return found;
}

// Lets every post to a pump wake a parker.
class HostPump::Watch {
 public:
  Watch(std::shared_ptr<HostPump> pump, Parker* parker) : pump_(std::move(pump)), parker_(parker) {
    MutexLock lock(pump_->mutex_);
    pump_->watchers_.push_back(parker_);
    if (!pump_->tasks_.empty()) parker_->unpark();
  }
  ~Watch() {
    MutexLock lock(pump_->mutex_);
    std::erase(pump_->watchers_, parker_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::shared_ptr<HostPump> pump_;
  Parker* parker_;
};

bool HostPump::wait(Completion& completion, Nanos timeout) {
  if (completion.is_done() || timeout == 0) return completion.is_done();
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  auto parker = std::make_shared<Parker>();
  completion.on_done([parker] { parker->unpark(); });
  while (!completion.is_done()) {
    // Looked up each time: a task may have made or ended a pump, or polled one first.
    const std::vector<std::shared_ptr<HostPump>> pumps = polled_here();
    const bool ran = std::any_of(pumps.begin(), pumps.end(), [](const auto& pump) { return pump->run_one(); });
    if (ran) {
      if (SteadyClock().now() >= deadline) return completion.is_done();
      continue;
    }
    std::vector<std::unique_ptr<Watch>> watches;
    for (const auto& pump : pumps) watches.push_back(std::make_unique<Watch>(pump, parker.get()));
    if (!completion.is_done() && !parker->park(deadline)) return completion.is_done();
  }
  return true;
}

}  // namespace distag
