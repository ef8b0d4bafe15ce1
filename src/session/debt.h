#pragma once

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace distag {

// Whether a peer owes an acknowledgement or an answer, and since when. Time for which it is not to blame does not
// count: `since` is that much later. On the loop.
class Debt {
 public:
  bool is_there() const { return since_ != kNever; }
  Nanos since() const { return since_; }

  // Unless it is there. One that was put off is as old as it was.
  void begin(Nanos now) {
    if (!is_there()) since_ = now - std::exchange(before_, 0);
  }
  // Nothing is asked of the peer until it begins again.
  void put_off(Nanos now) {
    if (is_there()) before_ = now - std::exchange(since_, kNever);
  }
  void settle() {
    since_ = kNever;
    before_ = 0;
  }
  void excuse(Nanos now, Nanos time) {
    if (is_there()) since_ = now - since_ > time ? since_ + time : now;
  }

 private:
  Nanos since_ = kNever;
  Nanos before_ = 0;  // how old the one that was put off is
};

}  // namespace distag
