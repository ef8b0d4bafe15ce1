#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/lead.h"
#include "base/reserve.h"
#include "base/task.h"
#include "base/trace_parent.h"

namespace distag {

// The data that the host gave with a callback: its user_data, whose destroy runs exactly once, at run_destroy() or with
// the last owner, where host code may run. A forked child does not run a parent's. Made before anything can fail.
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
  // Runs right after destroy, also when the host gave no destroy. Before run_destroy().
  void on_destroyed(Task then) { on_destroyed_ = std::move(then); }

 private:
  void* user_data_;
  Destroy destroy_;
  Task on_destroyed_;
  uint32_t generation_;
};

// Marks that a callback of a worker, or of one of its functions, runs on this thread: it gets nothing of the reserve
// that distag's own work on the thread has. Nests; lives on the stack. `trace_parent`: what the calls that it makes
// carry; outlives the scope.
class CallbackScope {
 public:
  explicit CallbackScope(const void* owner, const std::shared_ptr<const TraceParent>* trace_parent = nullptr);
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

 private:
  friend bool runs_callback_of(const void* owner);
  friend const std::shared_ptr<const TraceParent>* current_trace_parent();
  const void* owner_;
  const std::shared_ptr<const TraceParent>* trace_parent_;
  const CallbackScope* outer_;
  const ReserveScope reserve_{nullptr};
  const NoLead no_lead_;
};

// Whether the calling thread is inside a callback of the worker or function, or is a thread of the worker.
bool runs_callback_of(const void* owner);

// The trace parent that calls of the calling thread carry: that of its innermost callback, which may be empty; nullptr:
// that callback has none, or there is no callback.
const std::shared_ptr<const TraceParent>* current_trace_parent();
// The same, held for longer than that callback runs.
std::shared_ptr<const TraceParent> keep_trace_parent();

// Sets the worker that owns the calling thread, for as long as the thread runs; nullptr: none.
void set_thread_owner(const void* worker);

}  // namespace distag
