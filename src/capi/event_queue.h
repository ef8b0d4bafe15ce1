#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "capi/future.h"
#include "capi/invocation.h"
#include "rpc/rpc.h"

namespace distag::capi {

// Something that has come for a host that takes events: a call with the reply it is owed, or a complete future.
struct Event {
  uint64_t tag = 0;
  std::shared_ptr<Invocation> call;
  std::shared_ptr<PendingReply> reply;
  Ref<distag_future> future;
};

// One event on its way: who has the node needs no memory to pass it on.
using OneEvent = std::list<Event>;

// Events of a worker that nobody has taken yet, first in, first out. Any thread.
class EventQueue {
 public:
  void push(OneEvent event);
  // Before all others again.
  void put_back(OneEvent event) noexcept;
  OneEvent pop() noexcept;  // empty: there is none
  bool is_empty() const;

  // No more will come. Those that are there may still be taken.
  void mark_left();
  bool has_left() const;
  // Drops all: calls that nobody took fail, if they can still be told.
  void clear();

  // Completes with the next event, or when no more will come. To be forgotten by who waits no longer.
  void add_waiter(std::shared_ptr<Future<Unit>> next);
  void forget_waiter(const std::shared_ptr<Future<Unit>>& next);

 private:
  using Waiters = std::vector<std::shared_ptr<Future<Unit>>>;

  mutable Mutex mutex_;
  std::list<Event> events_ GUARDED_BY(mutex_);
  Waiters waiters_ GUARDED_BY(mutex_);
  bool has_left_ GUARDED_BY(mutex_) = false;
};

// The calls that were taken and are not finished. Their handles are the takers', and end with the host's last reference
// to the worker; not with the worker, since what they lend (contexts, references) may hold that. Any thread.
class TakenCalls {
 public:
  distag_invocation* add(distag_worker& worker, const Event& event);
  void end(distag_invocation& taken);
  void end_all();

 private:
  using Calls = std::map<distag_invocation*, std::unique_ptr<Lent<distag_invocation>>>;

  Mutex mutex_;
  Calls calls_ GUARDED_BY(mutex_);
};

struct Events {
  EventQueue queue;
  TakenCalls taken;
};

}  // namespace distag::capi
