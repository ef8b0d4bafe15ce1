#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "rpc/outgoing_call.h"

namespace distag {

// The calls that were made within one call and end with it. Used on the loop alone. Finished calls are removed each
// time that the number has doubled, so there are never more than twice as many as are open, or 16.
class NestedCalls {
 public:
  void add(const std::shared_ptr<OutgoingCall>& call) {
    if (calls_.size() >= limit_) {
      std::erase_if(calls_, [](const std::weak_ptr<OutgoingCall>& nested) {
        const auto alive = nested.lock();
        return alive == nullptr || alive->future.is_done();
      });
      limit_ = std::max<size_t>(16, 2 * calls_.size());
    }
    calls_.push_back(call);
  }
  std::vector<std::weak_ptr<OutgoingCall>> take() { return std::move(calls_); }

 private:
  std::vector<std::weak_ptr<OutgoingCall>> calls_;
  size_t limit_ = 16;
};

}  // namespace distag
