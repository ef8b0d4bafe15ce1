#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "autograd/context.h"
#include "base/ids.h"

namespace distag::autograd {

// The gradients of one context on one worker: what its committed passes left, summed by the first who reads.
// Thread-safe.
class GradientStore {
 public:
  using Entries = std::vector<Gradients::Entry>;

  void add(const Id& pass, Entries entries);
  std::shared_ptr<const Gradients> read();

 private:
  struct Committed {
    Id pass;
    Entries entries;
  };

  std::mutex mutex_;
  std::vector<Committed> fresh_;  // not yet in sums_
  std::shared_ptr<const Gradients> sums_;
};

}  // namespace distag::autograd
