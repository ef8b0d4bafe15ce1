// Events: calls and complete futures that the host takes, where nothing calls it back.

#include <utility>

#include "capi/event_queue.h"
#include "capi/struct_check.h"

using namespace distag;
using namespace distag::capi;

namespace {

// Told of the next event, and of the next task that may bring one.
class Arrival {
 public:
  Arrival(EventQueue& queue, HostExecutor& host) : Arrival(queue, host, Future<Unit>::make()) {
    queue_.add_waiter(next_);
    host_.add_waiter(next_);
  }
  ~Arrival() {
    queue_.forget_waiter(next_);
    host_.forget_waiter(next_);
  }
  Arrival(const Arrival&) = delete;
  Arrival& operator=(const Arrival&) = delete;

  void wait(Nanos timeout) { distag::wait(*next_, timeout); }
  void wait_and_run_nothing(Nanos timeout) { distag::wait_and_run_nothing(*next_, timeout); }

 private:
  // Whole from here on: what the other constructor has added is forgotten, also when memory ends half way.
  Arrival(EventQueue& queue, HostExecutor& host, std::shared_ptr<Future<Unit>> next)
      : queue_(queue), host_(host), next_(std::move(next)) {}

  EventQueue& queue_;
  HostExecutor& host_;
  const std::shared_ptr<Future<Unit>> next_;
};

[[noreturn]] void refuse_after_end() {
  refuse(Status::kInvalidState, "the worker is shut down, or has left its group: nothing more comes");
}

// Events come by tasks of the pump, in their turn with all else that it runs.
void run_due(distag_worker& worker) {
  const CallbackScope scope(&worker);
  HostExecutor& host = *worker.host();
  size_t due = host.waiting();
  while (due-- > 0 && worker.events().queue.is_empty() && host.poll(1, kForever) > 0) {
  }
}

// Without calls that are over: nobody waits for an answer to them.
OneEvent pop_open(EventQueue& queue) {
  for (;;) {
    OneEvent event = queue.pop();
    const std::shared_ptr<Invocation> call = event.empty() ? nullptr : event.front().call;
    if (call == nullptr || (!call->is_cancelled() && call->time_left() != 0)) return event;
  }
}

OneEvent next_event(distag_worker& worker, Nanos timeout) {
  EventQueue& queue = worker.events().queue;
  HostExecutor& host = *worker.host();
  host.poll(0, 0);  // from now on the caller is the thread that polls
  run_due(worker);
  if (OneEvent event = pop_open(queue); !event.empty()) return event;
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  for (;;) {
    Arrival arrival(queue, host);
    const bool has_left = queue.has_left() || host.is_stopped();
    run_due(worker);
    OneEvent event = pop_open(queue);
    if (!event.empty()) return event;
    if (has_left) refuse_after_end();
    const Nanos left = time_left(deadline);
    if (left == 0)
      refuse(Status::kDeadline, "no event after {} ms: take again, or wait longer", timeout / kMillisecond);
    arrival.wait(left);
  }
}

distag_event describe_for_host(distag_worker& worker, Event& event) {
  distag_event filled = DISTAG_EVENT_INIT;
  filled.tag = event.tag;
  filled.kind = event.call == nullptr ? DISTAG_EVENT_FUTURE : DISTAG_EVENT_CALL;
  if (event.call != nullptr) filled.invocation = worker.events().taken.add(worker, event);
  filled.future = event.future.give();
  return filled;
}

// Has the event come in its turn with all else that the pump runs. Made before it is promised: from then on the event
// needs no memory, so none is lost.
OneTask make_arrival(distag_worker& taker, OneEvent event) {
  OneTask arrival;
  arrival.emplace_back([taker = Ref<distag_worker>::share(&taker), event = std::move(event)]() mutable {
    taker->events().queue.push(std::move(event));
  });
  return arrival;
}

}  // namespace

namespace distag::capi {

void check_takes_events(distag_worker& worker) {
  worker.check_up();
  if (worker.events().queue.has_left()) refuse_after_end();
}

Function make_offer(distag_worker& worker, std::shared_ptr<HostFunction> function, uint64_t tag) {
  return [&worker, function, tag](Invocation& call) {
    OneEvent event(1);
    event.front().tag = tag;
    event.front().call = call.shared_from_this();
    event.front().reply = call.defer();
    worker.events().queue.push(std::move(event));
  };
}

}  // namespace distag::capi

distag_status distag_future_post(distag_future* future, distag_worker* worker, uint64_t tag, distag_error* err) {
  return guard(__func__, err, [=] {
    check_present({future, worker}, {"future", "worker"});
    distag_future& live = need(future, "future");
    distag_worker& taker = need_worker(worker);
    taker.need_host();
    check_takes_events(taker);
    OneEvent event(1);
    event.front().tag = tag;
    event.front().future = Ref<distag_future>::share(&live);
    live.get().on_done(
        [taker = Ref<distag_worker>::share(&taker), arrival = make_arrival(taker, std::move(event))]() mutable {
          taker->host()->post_or_drop_made(std::move(arrival));
        });
  });
}

distag_status distag_worker_wait(distag_worker* worker, int64_t timeout_ns, distag_error* err) {
  return guard(__func__, err, [=] {
    // Held: others may release theirs while this one waits.
    const auto held = Ref<distag_worker>::share(&need_worker(worker));
    HostExecutor& host = held->need_host();
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    held->check_up();
    check_can_wait();
    const EventQueue& queue = held->events().queue;
    const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
    for (;;) {
      Arrival arrival(held->events().queue, host);
      const bool has_left = queue.has_left() || host.is_stopped();
      if (host.waiting() > 0 || !queue.is_empty()) return;
      if (has_left) refuse_after_end();
      const Nanos left = time_left(deadline);
      if (left == 0) {
        refuse(Status::kDeadline, "nothing to poll for after {} ms: wait again, or longer", timeout / kMillisecond);
      }
      arrival.wait_and_run_nothing(left);
    }
  });
}

distag_status distag_worker_take_event(distag_worker* worker, int64_t timeout_ns, distag_event* out_event,
                                       distag_error* err) {
  return guard(__func__, err, [=] {
    if (is_readable(out_event, sizeof(distag_event))) fill_struct(out_event, distag_event{});
    // Held: others may release theirs while this one waits.
    const auto held = Ref<distag_worker>::share(&need_worker(worker));
    check_filled_struct(out_event, sizeof(distag_event), "distag_event");
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    held->need_host();
    held->check_up();
    check_can_wait();
    OneEvent event = next_event(*held, timeout);
    try {
      fill_struct(out_event, describe_for_host(*held, event.front()));
    } catch (...) {
      held->events().queue.put_back(std::move(event));  // it is there the next time
      throw;
    }
  });
}
