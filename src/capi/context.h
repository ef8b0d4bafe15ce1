#pragma once

#include <memory>

#include "autograd/context.h"
#include "base/trace_parent.h"
#include "capi/value.h"
#include "capi/worker.h"

// A context. The creator's last handle ends it; a handle that a function took does not keep it.
struct distag_context final : distag::capi::Handle {
  // `worker` is nullptr for training within this process. `trace_parent`: of the call that lends this handle.
  distag_context(std::shared_ptr<distag::Context> context, distag_worker* worker,
                 std::shared_ptr<const distag::TraceParent> trace_parent = nullptr)
      : Handle(distag::capi::Kind::kContext),
        worker_(distag::capi::Ref<distag_worker>::share(worker)),
        context_(std::move(context)),
        trace_parent_(std::move(trace_parent)) {}

  distag_worker* worker() const { return worker_.get(); }
  // Throws INVALID_STATE when its worker is down.
  distag::Context& get() const {
    if (worker_) worker_->check_up();
    return *context_;
  }
  // The same, for operations that outlive the call.
  std::shared_ptr<distag::Context> shared() const {
    get();
    return context_;
  }
  uint64_t id() const { return context_->id(); }
  const std::shared_ptr<const distag::TraceParent>& trace_parent() const { return trace_parent_; }

 private:
  const distag::capi::Ref<distag_worker> worker_;  // outlives the context
  const std::shared_ptr<distag::Context> context_;
  const std::shared_ptr<const distag::TraceParent> trace_parent_;
};

// A snapshot of gradients, and the handles it lends: all are made with it, so that looking one up cannot fail.
struct distag_gradients final : distag::capi::Handle {
 public:
  explicit distag_gradients(std::shared_ptr<const distag::Gradients> gradients);

  size_t count() const { return gradients_->entries.size(); }
  distag_tensor* leaf(size_t index);  // nullptr past the end, here and below
  distag_tensor* gradient(size_t index);
  distag_tensor* find(const distag::Tensor& leaf);

 private:
  using LentTensor = distag::capi::Lent<distag_tensor>;

  const std::shared_ptr<const distag::Gradients> gradients_;
  const std::unique_ptr<LentTensor[]> leaves_;
  const std::unique_ptr<LentTensor[]> handles_;
};
