#pragma once

#include <memory>
#include <utility>

#include "capi/worker.h"
#include "optim/optimizer.h"

// An optimizer; of a worker, or of this process alone.
struct distag_optimizer final : distag::capi::Handle {
  // `worker` is nullptr for tensors of this process.
  distag_optimizer(std::shared_ptr<distag::optim::Optimizer> optimizer, distag_worker* worker)
      : Handle(distag::capi::Kind::kOptimizer),
        worker_(distag::capi::Ref<distag_worker>::share(worker)),
        optimizer_(std::move(optimizer)) {}

  distag_worker* worker() const { return worker_.get(); }
  // Throws INVALID_STATE when its worker is down.
  distag::optim::Optimizer& get() const {
    if (worker_) worker_->check_up();
    return *optimizer_;
  }

 private:
  const distag::capi::Ref<distag_worker> worker_;  // outlives the optimizer
  const std::shared_ptr<distag::optim::Optimizer> optimizer_;
};

template <>
struct distag::capi::KindOf<distag_optimizer>
    : std::integral_constant<distag::capi::Kind, distag::capi::Kind::kOptimizer> {};
