#pragma once

#include <utility>

#include "base/clock.h"

namespace distag {

// That moment, with as much time since then as `time` not counted; `now` at most.
inline Nanos excused(Nanos moment, Nanos now, Nanos time) { return now - moment > time ? moment + time : now; }

// Whether a peer owes an acknowledgement or an answer, and since when. Time for which it is not to blame does not
// count: `since` is that much later. While the debt is put off it does not grow, and is not there. On the loop.
class Debt {
 public:
  bool is_there() const { return since_ != kNever; }
  Nanos since() const { return since_; }

  // Unless it is there. One that was put off goes on, as old as it was.
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
  // kNever: of all that it has owed. Another time is over, and a debt that is put off does not grow in it.
  void excuse(Nanos now, Nanos time) {
    if (is_there()) since_ = excused(since_, now, time);
    if (time == kNever) before_ = 0;
  }

 private:
  Nanos since_ = kNever;
  Nanos before_ = 0;  // how old the one that was put off is
};

}  // namespace distag
