#pragma once

#include <algorithm>
#include <vector>

#include "base/fd_loop.h"

namespace distag {

// The lookouts of a loop, asked as one. Not thread-safe.
class Lookouts {
 public:
  void add(Lookout& lookout) { lookouts_.push_back(&lookout); }
  void remove(Lookout& lookout) { std::erase(lookouts_, &lookout); }
  void clear() { lookouts_.clear(); }

  bool are_there() const { return !lookouts_.empty(); }
  bool has_work() const {
    return std::any_of(lookouts_.begin(), lookouts_.end(), [](Lookout* lookout) { return lookout->has_work(); });
  }
  bool is_under_way() const {
    return std::any_of(lookouts_.begin(), lookouts_.end(), [](Lookout* lookout) { return lookout->is_under_way(); });
  }
  // Tells all of them. True: one has work.
  bool begin_sleep() {
    bool has_work = false;
    for (Lookout* lookout : lookouts_) has_work |= lookout->begin_sleep();
    return has_work;
  }
  void end_sleep() {
    for (Lookout* lookout : lookouts_) lookout->end_sleep();
  }

 private:
  std::vector<Lookout*> lookouts_;
};

}  // namespace distag
