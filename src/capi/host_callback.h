#pragma once

#include <utility>

#include "capi/boundary.h"

namespace distag::capi {

// What the host gave with a callback: its user_data, whose destroy runs exactly once, at run_destroy() or with the last
// owner, where host code may run. In a forked child a parent's is not run. Made before anything can fail.
class HostData {
 public:
  HostData(void* user_data, distag_deleter destroy);
  HostData(HostData&& other) noexcept
      : user_data_(other.user_data_),
        destroy_(std::exchange(other.destroy_, nullptr)),
        generation_(other.generation_) {}
  HostData& operator=(HostData&&) = delete;
  ~HostData() { run_destroy(); }

  void* get() const { return user_data_; }
  void run_destroy() noexcept;

 private:
  void* user_data_;
  distag_deleter destroy_;
  uint32_t generation_;
};

// Marks that a callback of a worker runs on this thread. Nests; lives on the stack.
class CallbackScope {
 public:
  explicit CallbackScope(const void* worker);
  ~CallbackScope();
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

 private:
  friend bool runs_callback_of(const void* worker);
  const void* worker_;
  const CallbackScope* outer_;
};

// Whether the calling thread is inside a callback of the worker, or is a thread of it.
bool runs_callback_of(const void* worker);

// Says whose the calling thread is, for as long as it runs; nullptr: nobody's.
void set_thread_owner(const void* worker);

// What a callback answered, as an Error: its code where this version knows it (else REMOTE), its text. `what` names the
// callback: `function "embed"`.
Error callback_error(distag_status status, const distag_error& err, const std::string& what);

}  // namespace distag::capi
