#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/future.h"

namespace distag {

// Lets a thread sleep until another wakes it: a futex, the shortest way from thread to thread. A wake that comes before
// the sleep is kept; several count as one.
class Parker {
 public:
  // False when the deadline (of the steady clock) passed first. Only one thread parks.
  bool park(Nanos deadline = kNever);

  // Any thread. The woken thread sees all that the caller wrote before.
  void unpark();

 private:
  enum : uint32_t { kEmpty, kNotified, kParked };
  std::atomic<uint32_t> state_{kEmpty};
};

// Sleeps until the completion is done (true) or the timeout is over (false; negative: none). Runs nothing meanwhile.
bool park_until_done(Completion& completion, Nanos timeout);

}  // namespace distag
