#include "base/parker.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <memory>

namespace distag {
namespace {

// Sleeps while the word is `expected`; false at the deadline. May return early.
bool futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Nanos deadline) {
  timespec until{};
  until.tv_sec = static_cast<time_t>(deadline / kSecond);
  until.tv_nsec = static_cast<long>(deadline % kSecond);
  // WAIT_BITSET takes a point of the monotonic clock, WAIT a duration.
  const long result = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected,
                              deadline == kNever ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
  return result == 0 || errno != ETIMEDOUT;
}

}  // namespace

bool Parker::park(Nanos deadline) {
  uint32_t state = kNotified;
  if (state_.compare_exchange_strong(state, kEmpty, std::memory_order_acquire)) return true;
  state = kEmpty;
  if (deadline <= 0) return false;
  if (!state_.compare_exchange_strong(state, kParked, std::memory_order_acquire)) {
    state_.store(kEmpty, std::memory_order_relaxed);
    return true;
  }
  bool in_time = true;
  while (in_time && state_.load(std::memory_order_acquire) == kParked) in_time = futex_wait(state_, kParked, deadline);
  return state_.exchange(kEmpty, std::memory_order_acquire) == kNotified;
}

void Parker::unpark() {
  if (state_.exchange(kNotified, std::memory_order_release) == kParked) {
    syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
}

bool park_until_done(Completion& completion, Nanos timeout) {
  if (completion.is_done()) return true;
  if (timeout == 0) return false;
  // Shared: after a timeout the completion still holds the callback.
  auto parker = std::make_shared<Parker>();
  completion.on_done([parker] { parker->unpark(); });
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  while (!completion.is_done()) {
    if (!parker->park(deadline)) return completion.is_done();
  }
  return true;
}

}  // namespace distag
