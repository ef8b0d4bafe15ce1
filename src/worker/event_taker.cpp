#include "worker/event_taker.h"

#include "base/host_callback.h"

namespace distag {

namespace {

// Waits for the next event, or the next task, which may bring one.
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
  // Fully constructed after this: the destructor removes both waiters, also when the other constructor throws half way.
  Arrival(EventQueue& queue, HostExecutor& host, std::shared_ptr<Future<Unit>> next)
      : queue_(queue), host_(host), next_(std::move(next)) {}

  EventQueue& queue_;
  HostExecutor& host_;
  const std::shared_ptr<Future<Unit>> next_;
};

}  // namespace

EventTaker::Outcome EventTaker::take(OneEvent& event, Nanos timeout) {
  host_.poll(0, 0);  // from now on the calling thread is the one that polls
  run_due();
  if (event = pop_open(); !event.empty()) return Outcome::kCame;
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  for (;;) {
    Arrival arrival(queue_, host_);
    const bool is_last_look = has_ended();
    run_due();
    if (event = pop_open(); !event.empty()) return Outcome::kCame;
    if (is_last_look) return Outcome::kNothingMore;
    const Nanos left = time_left(deadline);
    if (left == 0) return Outcome::kTimeIsUp;
    arrival.wait(left);
  }
}

EventTaker::Outcome EventTaker::wait_for_work(Nanos timeout) {
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  for (;;) {
    Arrival arrival(queue_, host_);
    const bool is_last_look = has_ended();
    if (host_.waiting() > 0 || !queue_.is_empty()) return Outcome::kCame;
    if (is_last_look) return Outcome::kNothingMore;
    const Nanos left = time_left(deadline);
    if (left == 0) return Outcome::kTimeIsUp;
    arrival.wait_and_run_nothing(left);
  }
}

void EventTaker::run_due() {
  const CallbackScope scope(owner_);
  size_t due = host_.waiting();
  while (due-- > 0 && queue_.is_empty() && host_.poll(1, kForever) > 0) {
  }
}

// Gives the next event, without calls that are over: those need no answer.
OneEvent EventTaker::pop_open() {
  for (;;) {
    OneEvent event = queue_.pop();
    const std::shared_ptr<Invocation> call = event.empty() ? nullptr : event.front().call;
    if (call == nullptr || (!call->is_cancelled() && call->time_left() != 0)) return event;
  }
}

}  // namespace distag
