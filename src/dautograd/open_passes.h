#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace distag {

struct DistributedContext;

// The passes that have a part on one worker, and how many of those parts belong to passes of each other worker. On the
// loop.
//
// A part is counted from begin_part() to end_part(), which every part calls exactly once; a pass has a context from
// add(), which may fail after the part was counted, to the same end_part(). So the count of a worker is never below the
// number of its passes that are found here.
class OpenPasses {
 public:
  // `self` began the pass, or another worker did.
  void begin_part(const Id& pass, Incarnation self) {
    if (pass.maker != self) ++parts_of_others_[pass.maker];
  }
  void add(const Id& pass, std::shared_ptr<DistributedContext> context) { contexts_[pass] = std::move(context); }
  void end_part(const Id& pass) noexcept {
    contexts_.erase(pass);
    const auto others = parts_of_others_.find(pass.maker);
    if (others != parts_of_others_.end() && --others->second == 0) parts_of_others_.erase(others);
  }

  bool contains(const Id& pass) const { return contexts_.contains(pass); }
  size_t size() const { return contexts_.size(); }
  size_t parts_of(Incarnation other) const {
    const auto found = parts_of_others_.find(other);
    return found == parts_of_others_.end() ? 0 : found->second;
  }
  // A copy: what is done with one pass may end others.
  std::vector<std::pair<Id, std::shared_ptr<DistributedContext>>> all() const {
    return {contexts_.begin(), contexts_.end()};
  }

 private:
  std::unordered_map<Incarnation, size_t> parts_of_others_;
  std::unordered_map<Id, std::shared_ptr<DistributedContext>> contexts_;
};

}  // namespace distag
