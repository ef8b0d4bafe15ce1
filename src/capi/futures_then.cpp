// Futures made of futures: continuations.

#include <utility>

#include "base/flat_run.h"
#include "base/host_callback.h"
#include "base/host_code.h"
#include "capi/future.h"

using namespace distag;
using namespace distag::capi;

namespace {

// A continuation, from the moment it is given until it has run, or can no longer run since it was dropped; then the
// next future ends with it.
class Continuation {
 public:
  Continuation(distag_future_continuation function, HostData data, distag_future& future)
      : function_(function),
        data_(std::move(data)),
        future_(Ref<distag_future>::share(&future)),
        lent_(new StandIn(future)) {
    next_->set_operation("then");
    next_->set_canceller([weak = std::weak_ptr(future.shared())] {
      run_flat([weak] {
        if (const auto before = weak.lock()) before->cancel();
      });
    });
  }
  Continuation(const Continuation&) = delete;
  Continuation& operator=(const Continuation&) = delete;
  ~Continuation() {
    if (next_->is_done()) return;
    run_flat([next = next_] { next->fail(Error(Status::kCancelled, "then: the worker was shut down before it ran")); });
  }

  distag_worker& worker() const { return future_->worker(); }
  const std::shared_ptr<Future<Value>>& next() const { return next_; }

  void run() {
    if (!next_->mark_begun()) return data_.run_destroy();  // cancelled
    const CallbackScope scope(&worker().hosted(), &trace_parent_);
    distag_error err = DISTAG_ERROR_INIT;
    distag_value* written = nullptr;
    const distag_status status =
        call_host([&] { return function_(data_.get(), lent_.get()->as<distag_future>(), &written, &err); });
    const auto result = take_written(written);
    data_.run_destroy();
    if (status != DISTAG_OK) {
      next_->fail(
          callback_error(status, err, "a continuation").set_may_have_run(err.flags == DISTAG_ERROR_MAY_HAVE_RUN));
    } else if (written != nullptr && !result) {
      next_->fail(Error(Status::kInvalidArgument, "a continuation wrote something that is no value handle"));
    } else {
      next_->complete(result ? result->get() : Value());
    }
  }

 private:
  const distag_future_continuation function_;
  HostData data_;
  const Ref<distag_future> future_;
  const Lent<StandIn> lent_;
  // Calls in the continuation carry the trace parent that calls of its maker carried.
  const std::shared_ptr<const TraceParent> trace_parent_ = keep_trace_parent();
  const std::shared_ptr<Future<Value>> next_ = Future<Value>::make();
};

// Runs where the future completes. A continuation that cannot be posted is dropped, and ends the next future.
void post_or_drop(std::shared_ptr<Continuation> continuation) noexcept {
  try {
    Executor& functions = continuation->worker().functions();
    functions.post_or_drop([continuation = std::move(continuation)] { continuation->run(); });
  } catch (...) {
    // The continuation is dropped, which ends the next future.
  }
}

}  // namespace

distag_status distag_future_then(distag_future* future, distag_future_continuation continuation, void* user_data,
                                 distag_deleter destroy, distag_future** out_future, distag_error* err) {
  clear(out_future);
  GivenData data(user_data, destroy);
  return guard(__func__, err, [&] {
    distag_future& live = need(future, "future");
    if (continuation == nullptr) refuse_null("continuation");
    need_pointer(out_future, "out_future");
    live.worker().check_up();
    auto made = std::make_shared<Continuation>(continuation, std::move(data), live);
    auto next = Ref<distag_future>::take(new distag_future(made->next(), live.worker()));
    live.get().on_done([made = std::move(made)]() mutable { post_or_drop(std::move(made)); });
    *out_future = next.give();
  });
}
