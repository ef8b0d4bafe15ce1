// Futures: waiting, values, callbacks.

#include "capi/future.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/host_callback.h"
#include "base/host_code.h"

using namespace distag;
using namespace distag::capi;

distag_value* distag_future::value() {
  return value_.get([this] { return make_value(get().value()); });
}

namespace {

// A callback on a future, until it has run.
class DoneCallback {
 public:
  DoneCallback(distag_future_callback callback, HostData data, distag_future& future)
      : callback_(callback),
        data_(std::move(data)),
        future_(Ref<distag_future>::share(&future)),
        lent_(new StandIn(future)) {}

  distag_worker& worker() const { return future_->worker(); }

  void run() {
    const CallbackScope scope(&worker().hosted(), &trace_parent_);
    call_host([&] { callback_(data_.get(), lent_.get()->as<distag_future>()); });
    data_.run_destroy();
  }

 private:
  const distag_future_callback callback_;
  HostData data_;
  const Ref<distag_future> future_;
  const Lent<StandIn> lent_;
  // Calls in the callback carry the trace parent that calls of its maker carried.
  const std::shared_ptr<const TraceParent> trace_parent_ = keep_trace_parent();
};

void post_done(const std::shared_ptr<DoneCallback>& done) {
  done->worker().functions().post_or_drop([done] { done->run(); });
}

// Runs where the future completes: a callback that can no longer run ends here, with its user_data.
void post_done_or_drop(const std::shared_ptr<DoneCallback>& done) noexcept {
  try {
    post_done(done);
  } catch (...) {
    // Nothing is left to report to: the callback goes with its user_data.
  }
}

// A shutdown cannot end before the callback that waits for it.
void check_no_circle(const distag_future& future) {
  if (!future.is_of_shutdown() || future.state().is_done() || !future.worker().runs_callback()) return;
  refuse(Status::kInvalidState, "called from a callback of the worker that shuts down: it cannot end before");
}

// Returns, or throws, as the operation ended.
void wait_for(distag_future& future, Nanos timeout) {
  check_can_wait();
  check_no_circle(future);
  const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
  if (!distag::wait(future.state(), timeout)) {
    refuse(Status::kDeadline, "not complete after {} ms; it goes on", timeout / kMillisecond);
  }
  if (future.is_of_shutdown() && future.get().error() == nullptr) future.worker().hosted().join(time_left(deadline));
  future.get().value();
}

// Completes with the first failure of several futures, or when all have a value.
class AllDone {
 public:
  explicit AllDone(size_t count) : left_(count) {}
  Completion& outcome() { return *outcome_; }

  void one_ended(const Error* error) {
    if (error != nullptr) {
      outcome_->fail(*error);
    } else if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      outcome_->complete(Unit{});
    }
  }

 private:
  std::atomic<size_t> left_;
  const std::shared_ptr<Future<Unit>> outcome_ = Future<Unit>::make();
};

}  // namespace

void distag_future_retain(distag_future* future) { retain_handle(future); }
void distag_future_release(distag_future* future) { release_handle(future); }

int32_t distag_future_poll(distag_future* future) {
  const distag_future* live = peek(future);
  return live != nullptr && live->state().is_done() ? 1 : 0;
}

distag_status distag_future_wait(distag_future* future, int64_t timeout_ns, distag_error* err) {
  return guard(__func__, err, [=] {
    // Held: other threads may release their references during the wait.
    const auto held = Ref<distag_future>::share(&need(future, "future"));
    wait_for(*held, need_timeout(timeout_ns, "timeout_ns"));
  });
}

distag_status distag_future_get_value(distag_future* future, distag_value** out_value, distag_error* err) {
  clear(out_value);
  return guard(__func__, err, [=] {
    distag_future& live = need(future, "future");
    need_pointer(out_value, "out_value");
    if (!live.state().is_done()) refuse(Status::kInvalidState, "the future is not complete: wait for it first");
    *out_value = live.value();
  });
}

void distag_future_cancel(distag_future* future) {
  guard_or(0, [future] {
    if (distag_future* live = peek(future)) live->state().cancel();
    return 0;
  });
}

distag_status distag_future_on_done(distag_future* future, distag_future_callback callback, void* user_data,
                                    distag_deleter destroy, distag_error* err) {
  GivenData data(user_data, destroy);
  return guard(__func__, err, [&] {
    distag_future& live = need(future, "future");
    if (callback == nullptr) refuse_null("callback");
    live.worker().check_up();
    auto done = std::make_shared<DoneCallback>(callback, std::move(data), live);
    live.get().on_done([done] { post_done_or_drop(done); });
  });
}

distag_status distag_wait_all(distag_future* const* futures, size_t count, int64_t timeout_ns, distag_error* err) {
  return guard(__func__, err, [=] {
    check_copied_array(futures, count, "futures");
    std::vector<Ref<distag_future>> held;
    held.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      held.push_back(Ref<distag_future>::share(&need_item(futures, i, "futures")));
    }
    const Nanos timeout = need_timeout(timeout_ns, "timeout_ns");
    if (count == 0) return;
    check_can_wait();
    for (const auto& future : held) check_no_circle(*future);
    auto all = std::make_shared<AllDone>(count);
    for (const auto& future : held) {
      future->get().on_done([all, one = &future->get()] { all->one_ended(one->error()); });
    }
    const Nanos deadline = deadline_after(SteadyClock().now(), timeout);
    if (!distag::wait(all->outcome(), timeout)) {
      refuse(Status::kDeadline, "not complete after {} ms; they go on", timeout / kMillisecond);
    }
    if (all->outcome().error() != nullptr) throw *all->outcome().error();
    for (const auto& future : held) {
      if (future->is_of_shutdown()) future->worker().hosted().join(time_left(deadline));
    }
  });
}
