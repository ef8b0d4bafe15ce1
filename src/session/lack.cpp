#include "session/lack.h"

#include <utility>

#include "base/each_step.h"

namespace distag {

// A lack that is over or has not shown for the patience is another one: it begins now.
void Lack::note(const Error& why, Nanos now) noexcept {
  if (!is_there(now)) since_ = counted_at_ = now;
  count(now);
  last_ = now;
  is_over_ = is_tried_ = false;
  EachStep each;  // without memory for the words the older ones stay
  each([this, &why] { error_ = why; });
}

// The time until now counts; that of the attempt is open until its end is known.
void Lack::try_again(Nanos now) noexcept {
  if (!is_there(now)) return;
  if (!is_tried_) count(now);
  is_tried_ = true;
}

Nanos Lack::take_time(Nanos now) noexcept {
  if (is_there(now) && !is_tried_) count(now);
  return std::exchange(time_, 0);
}

void Lack::count(Nanos now) noexcept { time_ += now - std::exchange(counted_at_, now); }

}  // namespace distag
