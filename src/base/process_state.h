#pragma once

#include <atomic>
#include <cstdint>
#include <new>
#include <thread>
#include <type_traits>

#include "base/mutex.h"
#include "base/process.h"

namespace distag {

// State that all threads of the process share, behind a lock. A forked child begins with an empty state: a thread of
// the parent may have held the lock, and have left the state half changed. A fork does not wait for this lock. It is
// the innermost of all locks, unless its owner says otherwise. There is no destructor, so nothing is left to run when
// the library is unloaded.
template <typename State>
class ProcessState {
  static_assert(std::is_trivially_destructible_v<State>);

 public:
  constexpr ProcessState() = default;
  ProcessState(const ProcessState&) = delete;
  ProcessState& operator=(const ProcessState&) = delete;

  // Access to the state while this lives.
  class Access {
   public:
    explicit Access(ProcessState& shared) : lock_(shared.mutex_of_this_process()), state_(shared.state_) {}
    State* operator->() const { return &state_; }

   private:
    MutexLock lock_;
    State& state_;
  };

 private:
  // owner_ is twice the generation of the process that owns the state; one more while a thread sets it up anew.
  Mutex& mutex_of_this_process() {
    const uint64_t own = uint64_t{2} * process_generation();
    for (uint64_t found = owner_.load(std::memory_order_acquire); found != own;
         found = owner_.load(std::memory_order_acquire)) {
      if (found == own + 1) {
        std::this_thread::yield();
      } else if (owner_.compare_exchange_strong(found, own + 1, std::memory_order_acquire)) {
        of_parent_ = state_;
        new (&mutex_) Mutex;
        new (&state_) State;
        owner_.store(own, std::memory_order_release);
      }
    }
    return mutex_;
  }

  std::atomic<uint64_t> owner_{0};
  Mutex mutex_;
  State state_{};
  State of_parent_{};  // reachable for leak checkers
};

}  // namespace distag
