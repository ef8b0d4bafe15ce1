#include "base/host_callback.h"

#include "base/host_code.h"
#include "base/process.h"

namespace distag {
namespace {

thread_local const CallbackScope* innermost_scope = nullptr;
thread_local const void* thread_owner = nullptr;

}  // namespace

HostData::HostData(void* user_data, Destroy destroy)
    : user_data_(user_data), destroy_(destroy), generation_(process_generation()) {}

void HostData::run_destroy() noexcept {
  const Destroy destroy = std::exchange(destroy_, nullptr);
  Task then = std::move(on_destroyed_);
  if ((destroy == nullptr && !then) || generation_ != process_generation()) return;
  try {
    if (!then) {
      // Small enough to need no memory: a task that cannot be made would never run.
      run_host_code([destroy, user_data = user_data_] { call_host([&] { destroy(user_data); }); });
      return;
    }
    run_host_code([destroy, user_data = user_data_, then = std::move(then)]() mutable {
      if (destroy != nullptr) call_host([&] { destroy(user_data); });
      if (then) then();
    });
  } catch (...) {
    // The executor refused the task and dropped it, which ran it.
  }
}

CallbackScope::CallbackScope(const void* owner, const std::shared_ptr<const TraceParent>* trace_parent)
    : owner_(owner), trace_parent_(trace_parent), outer_(innermost_scope) {
  innermost_scope = this;
}

CallbackScope::~CallbackScope() { innermost_scope = outer_; }

bool runs_callback_of(const void* owner) {
  if (thread_owner == owner) return true;
  for (const CallbackScope* scope = innermost_scope; scope != nullptr; scope = scope->outer_) {
    if (scope->owner_ == owner) return true;
  }
  return false;
}

const std::shared_ptr<const TraceParent>* current_trace_parent() {
  const CallbackScope* const scope = innermost_scope;
  return scope == nullptr ? nullptr : scope->trace_parent_;
}

std::shared_ptr<const TraceParent> keep_trace_parent() {
  const auto* const current = current_trace_parent();
  return current == nullptr ? nullptr : *current;
}

void set_thread_owner(const void* worker) { thread_owner = worker; }

}  // namespace distag
