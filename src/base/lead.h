#pragma once

#include "base/clock.h"
#include "base/loop.h"

namespace distag {

// The calling thread is about to ask something of a loop and to wait for the answer. What it posts there from now on
// wakes no thread, since the loop runs on this thread while it waits ("leader and followers"), unless another thread is
// awake to run it. So a call needs no hand-over between threads. At the end of this, what is left is handed to the
// loop's own thread. Lives on the stack, nests; the loop outlives it.
class Lead {
 public:
  explicit Lead(Loop& loop) noexcept;
  ~Lead();
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  // Whether what the calling thread posts to that loop wakes no thread.
  static bool is_quiet_to(const Loop& loop) noexcept;

 private:
  friend bool lead_or_park(Completion& completion, Nanos timeout);
  friend class NoLead;
  Loop& loop_;
  Lead* const outer_;
  const bool is_installed_;
};

// While this lives, the calling thread leads no loop, and another thread takes what it posted: for code that may wait
// for that in its own way.
class NoLead {
 public:
  NoLead() noexcept;
  ~NoLead();
  NoLead(const NoLead&) = delete;
  NoLead& operator=(const NoLead&) = delete;

 private:
  Lead* const before_;
};

// Waits as Loop::lead does if the calling thread has a Lead, else sleeps.
bool lead_or_park(Completion& completion, Nanos timeout);

}  // namespace distag
