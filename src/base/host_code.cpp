#include "base/host_code.h"

#include <pthread.h>

#include <utility>

#include "base/lead.h"

namespace distag {

namespace {

thread_local Executor* t_executor = nullptr;

// A task that runs when it is dropped, if not before.
class OwedTask {
 public:
  explicit OwedTask(Task task) : task_(std::move(task)) {}
  OwedTask(OwedTask&&) noexcept = default;
  OwedTask& operator=(OwedTask&&) = delete;
  ~OwedTask() { (*this)(); }

  void operator()() {
    Task task = std::move(task_);
    if (task) task();
  }

 private:
  Task task_;
};

}  // namespace

Executor* exchange_host_code_executor(Executor* executor) { return std::exchange(t_executor, executor); }

void run_host_code(Task code) {
  if (t_executor == nullptr) {
    const NoLead no_lead;
    code();
  } else {
    t_executor->post_or_drop(OwedTask(std::move(code)));
  }
}

void park_for_good() noexcept {
  give_up_this_thread();
  // Parked inside the C library: a signal does not bring the thread back here, where the code may be unloaded.
  pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
  for (;;) pthread_mutex_lock(&own);
}

}  // namespace distag
