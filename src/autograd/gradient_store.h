#pragma once

#include <memory>
#include <span>
#include <vector>

#include "autograd/context.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace distag::autograd {

// The gradients of one context on one worker: what its committed passes left, summed by the first reader.
// Thread-safe.
class GradientStore {
 public:
  using Entries = std::vector<Gradients::Entry>;

  void add(const Id& pass, Entries entries);
  std::shared_ptr<const Gradients> read();
  // See Context::scale_gradients.
  void scale(std::span<const uint64_t> leaves, double factor, uint64_t passes);

 private:
  struct Committed {
    Id pass;
    Entries entries;
  };

  void sum_fresh() REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<Committed> fresh_ GUARDED_BY(mutex_);  // not yet in sums_
  std::shared_ptr<const Gradients> sums_ GUARDED_BY(mutex_);
};

}  // namespace distag::autograd
