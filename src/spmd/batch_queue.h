#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "base/future.h"
#include "base/mutex.h"
#include "tensor/value.h"

namespace distag::spmd {

// The ready batches of a loader, and the waiters for batches, in order. The loop adds batches and ends the queue. The
// host takes batches, and may cancel a wait: a batch goes to the first waiter that has not ended. Thread-safe.
class BatchQueue {
 public:
  using Wait = std::shared_ptr<Future<Value>>;
  struct Counts {
    uint32_t ready = 0;
    uint64_t next = 0;
    Nanos waited = 0;
  };
  explicit BatchQueue(uint64_t first) : next_(first) {}

  // Completes with the next batch; null at the end.
  Wait take(Nanos now);
  // Gives the batch to the first waiter, or queues it behind those that are ready.
  void put(Value batch, Nanos now);
  // Ends the queue behind the ready batches. The next waiter gets the failure, others null.
  void end(std::optional<Error> failure, Nanos now);
  // All waits, now and later, fail with this error.
  void break_off(const Error& error);
  // Removes a wait.
  void forget(const Wait& wait, Nanos now);

  uint64_t next() const;
  Counts counts() const;

 private:
  struct Waiter {
    Wait wait;
    Nanos since = 0;
  };
  // The first waiter that has not ended, which is claimed; nullptr: none.
  Wait claim_waiter(Nanos now) REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::deque<Value> ready_ GUARDED_BY(mutex_);
  std::deque<Waiter> waiters_ GUARDED_BY(mutex_);
  uint64_t next_ GUARDED_BY(mutex_);
  Nanos waited_ GUARDED_BY(mutex_) = 0;
  bool has_ended_ GUARDED_BY(mutex_) = false;
  std::optional<Error> failure_ GUARDED_BY(mutex_);  // not handed out yet
  std::optional<Error> broken_ GUARDED_BY(mutex_);
};

}  // namespace distag::spmd
