#pragma once

#include <atomic>
#include <memory>

#include "base/future.h"
#include "capi/value.h"
#include "capi/worker.h"

// The future of an operation of a worker.
struct distag_future final : distag::capi::Handle {
 public:
  enum class Of { kOperation, kShutdown };
  using Seen = std::shared_ptr<std::atomic<bool>>;

  distag_future(std::shared_ptr<distag::Future<distag::Value>> future, distag_worker& worker, Of of = Of::kOperation)
      : Handle(distag::capi::Kind::kFuture),
        worker_(distag::capi::Ref<distag_worker>::share(&worker)),
        future_(std::move(future)),
        of_(of) {}
  // `is_seen` notes whether the outcome was asked for.
  distag_future(std::shared_ptr<distag::Future<distag::Value>> future, distag_worker& worker, Seen is_seen)
      : distag_future(std::move(future), worker) {
    is_seen_ = std::move(is_seen);
  }

  // For a caller that wants the outcome, at once or later.
  distag::Future<distag::Value>& get() const { return *shared(); }
  const std::shared_ptr<distag::Future<distag::Value>>& shared() const {
    if (is_seen_ != nullptr) *is_seen_ = true;
    return future_;
  }
  // For a caller that does not want the outcome.
  distag::Future<distag::Value>& state() const { return *future_; }
  distag_worker& worker() const { return *worker_; }
  // Whether a wait on it joins the threads of the worker.
  bool is_of_shutdown() const { return of_ == Of::kShutdown; }

  // Lent. Only once it is done and did not fail.
  distag_value* value();

 private:
  const distag::capi::Ref<distag_worker> worker_;
  const std::shared_ptr<distag::Future<distag::Value>> future_;
  const Of of_;
  Seen is_seen_;
  distag::capi::Lent<distag_value> value_;
};
