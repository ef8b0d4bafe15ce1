#pragma once

#include <cstdint>
#include <utility>

#include "base/lead.h"
#include "base/reserve.h"
#include "base/task.h"

namespace distag {

// The data that the host gave with a callback: its user_data, whose destroy runs exactly once, at run_destroy() or with
// the last owner, where host code may run. In a forked child a parent's is not run. Made before anything can fail.
class HostData {
 public:
  using Destroy = void (*)(void* user_data);

  HostData(void* user_data, Destroy destroy);
  HostData(HostData&& other) noexcept
      : user_data_(other.user_data_),
        destroy_(std::exchange(other.destroy_, nullptr)),
        on_destroyed_(std::move(other.on_destroyed_)),
        generation_(other.generation_) {}
  HostData& operator=(HostData&&) = delete;
  ~HostData() { run_destroy(); }

  void* get() const { return user_data_; }
  void run_destroy() noexcept;
  // Runs right after destroy, also when there is none. Before run_destroy().
  void on_destroyed(Task then) { on_destroyed_ = std::move(then); }

 private:
  void* user_data_;
  Destroy destroy_;
  Task on_destroyed_;
  uint32_t generation_;
};

// Marks that a callback of a worker, or one function of it, runs on this thread: it gets nothing of the reserve that
// distag's own work on the thread has. Nests; lives on the stack.
class CallbackScope {
 public:
  explicit CallbackScope(const void* owner);
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

 private:
  friend bool runs_callback_of(const void* owner);
  const void* owner_;
  const CallbackScope* outer_;
  const ReserveScope reserve_{nullptr};
  const NoLead no_lead_;
};

// Whether the calling thread is inside a callback of the worker or function, or is a thread of the worker.
bool runs_callback_of(const void* owner);

// Says whose the calling thread is, for as long as it runs; nullptr: nobody's.
void set_thread_owner(const void* worker);

}  // namespace distag
