#pragma once

#include <utility>

#include "base/clock.h"

namespace distag {

// Moves `moment` later by `time`, but not past `now`: the excused time does not count.
inline Nanos excused(Nanos moment, Nanos now, Nanos time) { return now - moment > time ? moment + time : now; }

// Whether a peer owes an acknowledgement or an answer, and since when. Time for which the peer is not to blame does not
// count: `since` moves later by it. A debt that is put off does not grow and does not count as present. On the loop.
class Debt {
 public:
  bool is_there() const { return since_ != kNever; }
  Nanos since() const { return since_; }

  // Does nothing if a debt is there already. A debt that was put off resumes with the age it had.
  void begin(Nanos now) {
    if (!is_there()) since_ = now - std::exchange(before_, 0);
  }
  // The peer is asked for nothing until the debt begins again.
  void put_off(Nanos now) {
    if (is_there()) before_ = now - std::exchange(since_, kNever);
  }
  void settle() {
    since_ = kNever;
    before_ = 0;
  }
  // kNever excuses all that the peer has owed. Any other `time` leaves a debt that is put off as it is, since that did
  // not grow in it.
  void excuse(Nanos now, Nanos time) {
    if (is_there()) since_ = excused(since_, now, time);
    if (time == kNever) before_ = 0;
  }

 private:
  Nanos since_ = kNever;
  Nanos before_ = 0;  // age of the debt that was put off
};

}  // namespace distag
