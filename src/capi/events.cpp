// Events: calls and complete futures that the host takes, instead of being called back.

#include <utility>

#include "capi/future.h"
#include "capi/struct_check.h"
#include "capi/taken_calls.h"
#include "worker/event_taker.h"

using namespace distag;
using namespace distag::capi;

namespace {

[[noreturn]] void refuse_after_end() {
  refuse(Status::kInvalidState, "the worker is shut down, or has left its group: nothing more comes");
}

EventTaker make_taker(distag_worker& worker) { return {worker.events(), worker.need_host(), &worker.hosted()}; }

Event::FutureHandle hold(distag_future& future) {
  future.retain();
  return {&future, [](void* handle) { static_cast<distag_future*>(handle)->release(); }};
}

distag_event describe_for_host(distag_worker& worker, Event& event) {
  distag_event filled = DISTAG_EVENT_INIT;
  filled.tag = event.tag;
  filled.kind = event.call == nullptr ? DISTAG_EVENT_FUTURE : DISTAG_EVENT_CALL;
  if (event.call != nullptr) filled.invocation = worker.taken_calls().add(worker, event);
  if (event.future != nullptr) {
    filled.future = static_cast<distag_future*>(event.future.release());
    filled.future->pass_to_host();
  }
  return filled;
}

// Makes the task by which the event arrives in its turn with all else that the pump runs. Made before the event is
// promised: from then on it needs no memory, so none is lost.
OneTask make_arrival(distag_worker& taker, OneEvent event) {
  OneTask arrival;
  arrival.emplace_back([taker = Ref<distag_worker>::share(&taker), event = std::move(event)]() mutable {
    taker->events().push(std::move(event));
  });
  return arrival;
}

}  // namespace

namespace distag::capi {

void check_takes_events(distag_worker& worker) {
  worker.check_up();
  if (worker.events().has_left()) refuse_after_end();
}

Function make_offer(distag_worker& worker, std::shared_ptr<HostFunction> function, uint64_t tag) {
  return [&worker, function, tag](Invocation& call) {
    OneEvent event(1);
    event.front().tag = tag;
    event.front().call = call.shared_from_this();
    event.front().reply = call.defer();
    worker.events().push(std::move(event));
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
    event.front().future = hold(live);
    live.get().on_done(
        [taker = Ref<distag_worker>::share(&taker), arrival = make_arrival(taker, std::move(event))]() mutable {
          taker->host()->post_or_drop_made(std::move(arrival));
        });
  });
}

distag_status distag_worker_wait(distag_worker* worker, int64_t timeout_ns, distag_error* err) {
  return guard(__func__, err, [=] {
    // Held: other threads may release their references during the wait.
    const auto held = Ref<distag_worker>::share(&need_worker(worker));
    EventTaker taker = make_taker(*held);
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    held->check_up();
    check_can_wait();
    const EventTaker::Outcome outcome = taker.wait_for_work(timeout);
    if (outcome == EventTaker::Outcome::kNothingMore) refuse_after_end();
    if (outcome == EventTaker::Outcome::kTimeIsUp) {
      refuse(Status::kDeadline, "nothing to poll for after {} ms: wait again, or longer", timeout / kMillisecond);
    }
  });
}

distag_status distag_worker_take_event(distag_worker* worker, int64_t timeout_ns, distag_event* out_event,
                                       distag_error* err) {
  return guard(__func__, err, [=] {
    if (is_readable(out_event, sizeof(distag_event))) fill_struct(out_event, distag_event{});
    // Held: other threads may release their references during the wait.
    const auto held = Ref<distag_worker>::share(&need_worker(worker));
    check_filled_struct(out_event, sizeof(distag_event), "distag_event");
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    EventTaker taker = make_taker(*held);
    held->check_up();
    check_can_wait();
    OneEvent event;
    const EventTaker::Outcome outcome = taker.take(event, timeout);
    if (outcome == EventTaker::Outcome::kNothingMore) refuse_after_end();
    if (outcome == EventTaker::Outcome::kTimeIsUp) {
      refuse(Status::kDeadline, "no event after {} ms: take again, or wait longer", timeout / kMillisecond);
    }
    try {
      fill_struct(out_event, describe_for_host(*held, event.front()));
    } catch (...) {
      held->events().put_back(std::move(event));  // the next call gets it
      throw;
    }
  });
}
