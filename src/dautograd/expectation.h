#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/graph_task.h"
#include "dautograd/pass_grads.h"

namespace distag {

// The part of a plan that one worker has: the values of its sends whose gradients come, and the recvs that a walk from
// there has to reach. Gradients that come before the plan, or before the walk has shown that it holds, wait here. On
// the loop.
class Expectation {
 public:
  bool is_told() const { return is_told_; }
  void tell(uint64_t check) {
    is_told_ = true;
    check_ = check;
  }
  // False if the pair is in it already.
  bool add(const Id& pair, autograd::Bits bits) { return sends_.emplace(pair, std::move(bits)).second; }
  bool is_of(const Id& pair, const autograd::Bits& live) const {
    const auto found = sends_.find(pair);
    return found != sends_.end() && found->second == live;
  }

  // Whether the recvs that were reached are those of the plan.
  bool agrees(uint64_t reached) const { return reached == check_; }
  bool is_checked() const { return is_checked_; }
  void set_checked() { is_checked_ = true; }

  // False if a gradient of that pair waits already.
  bool keep(PassGrads::Gradient gradient) {
    const Id pair = gradient.send->info().pair;
    return early_.try_emplace(pair, std::move(gradient)).second;
  }
  std::unordered_map<Id, PassGrads::Gradient> take_kept() { return std::exchange(early_, {}); }

 private:
  bool is_told_ = false;
  bool is_checked_ = false;
  uint64_t check_ = 0;
  std::unordered_map<Id, autograd::Bits> sends_;
  std::unordered_map<Id, PassGrads::Gradient> early_;
};

}  // namespace distag
