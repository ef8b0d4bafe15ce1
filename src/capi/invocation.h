#pragma once

#include <memory>

#include "capi/context.h"
#include "capi/value.h"
#include "capi/worker.h"
#include "rpc/rpc.h"

// An incoming call, lent to the function that answers it, or taken as an event; holds the handles that the call itself
// lends in turn.
struct distag_invocation final : distag::capi::Handle {
 public:
  distag_invocation(distag_worker& worker, std::shared_ptr<distag::Invocation> call,
                    std::shared_ptr<distag::PendingReply> reply = nullptr)
      : Handle(distag::capi::Kind::kInvocation),
        worker_(worker),
        call_(std::move(call)),
        reply_(std::move(reply)),
        args_(std::make_unique<distag::capi::Lent<distag_value>[]>(call_->args().size())),
        referred_(std::make_unique<distag::capi::Lent<distag_value>[]>(call_->args().size())) {}

  distag::Invocation& call() { return *call_; }
  const std::shared_ptr<distag::Invocation>& shared_call() const { return call_; }

  // The reply of a call that was taken as an event; nullptr if its function answers.
  distag::PendingReply* reply() { return reply_.get(); }

  distag_worker& worker() { return worker_; }
  // These handles are lent.
  distag_context* context();        // nullptr: nothing is recorded
  distag_value* arg(size_t index);  // nullptr past the end
  // An argument of the kind, or the value of this worker that it refers to. Throws INVALID_ARGUMENT naming both kinds.
  distag_value& need_arg(size_t index, distag::ValueKind kind);

 private:
  distag_worker& worker_;
  const std::shared_ptr<distag::Invocation> call_;
  const std::shared_ptr<distag::PendingReply> reply_;
  std::unique_ptr<distag::capi::Lent<distag_value>[]> args_;
  std::unique_ptr<distag::capi::Lent<distag_value>[]> referred_;  // the values that arguments refer to
  distag::capi::Lent<distag_context> context_;
};

// The answer that a function still owes.
struct distag_reply final : distag::capi::Handle {
  explicit distag_reply(std::shared_ptr<distag::PendingReply> pending)
      : Handle(distag::capi::Kind::kReply), pending_(std::move(pending)) {}

  distag::PendingReply& pending() { return *pending_; }

 private:
  const std::shared_ptr<distag::PendingReply> pending_;
};
