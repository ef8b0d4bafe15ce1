#pragma once

#include <memory>
#include <utility>

#include "capi/worker.h"
#include "spmd/loader.h"

// A loader. Its end ends its batches, on all members.
struct distag_loader final : distag::capi::Handle {
  distag_loader(std::shared_ptr<distag::spmd::Loader> loader, distag_worker& worker)
      : Handle(distag::capi::Kind::kLoader),
        worker_(distag::capi::Ref<distag_worker>::share(&worker)),
        loader_(std::move(loader)) {}
  ~distag_loader() override { loader_->close(); }

  distag_worker& worker() const { return *worker_; }
  distag::spmd::Loader& get() const { return *loader_; }

 private:
  const distag::capi::Ref<distag_worker> worker_;  // outlives the loader
  const std::shared_ptr<distag::spmd::Loader> loader_;
};

template <>
struct distag::capi::KindOf<distag_loader> : std::integral_constant<distag::capi::Kind, distag::capi::Kind::kLoader> {};
