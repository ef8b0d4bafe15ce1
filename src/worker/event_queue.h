#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/future.h"
#include "base/mutex.h"
#include "rpc/rpc.h"

namespace distag {

// An event for a host that takes events: a call with the reply that it is owed, or a complete future.
struct Event {
  // A reference to the host's handle, and the function that drops it.
  using FutureHandle = std::unique_ptr<void, void (*)(void*)>;

  uint64_t tag = 0;
  std::shared_ptr<Invocation> call;
  std::shared_ptr<PendingReply> reply;
  FutureHandle future{nullptr, nullptr};
};

// A single event as a list node: its holder needs no memory to pass it on.
using OneEvent = std::list<Event>;

// Events of a worker that were not taken yet, first in, first out. Any thread.
class EventQueue {
 public:
  void push(OneEvent event);
  // Puts the event before all others again.
  void put_back(OneEvent event) noexcept;
  OneEvent pop() noexcept;  // empty: no event waits
  bool is_empty() const;

  // No more events will come. Waiting ones may still be taken.
  void mark_left();
  bool has_left() const;
  // Drops all events: calls that were not taken fail, if their callers can still be told.
  void clear();

  // Completes with the next event, or when no more will come. A caller that stops waiting calls forget_waiter().
  void add_waiter(std::shared_ptr<Future<Unit>> next);
  void forget_waiter(const std::shared_ptr<Future<Unit>>& next);

 private:
  using Waiters = std::vector<std::shared_ptr<Future<Unit>>>;

  mutable Mutex mutex_;
  std::list<Event> events_ GUARDED_BY(mutex_);
  Waiters waiters_ GUARDED_BY(mutex_);
  bool has_left_ GUARDED_BY(mutex_) = false;
};

}  // namespace distag
