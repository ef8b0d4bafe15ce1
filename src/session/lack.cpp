#include "session/lack.h"

#include <utility>

#include "base/each_step.h"

namespace distag {

// A failure after the lack is over, or has not shown for `patience`, begins a new lack now.
void Lack::note(const Error& why, Nanos now) noexcept {
  if (!is_there(now)) since_ = counted_at_ = now;
  count(now);
  last_ = now;
  is_over_ = is_tried_ = false;
  EachStep each;  // without memory for the text the older error stays
  each([this, &why] { error_ = why; });
}

// The time until now counts; whether the time of the attempt counts is open until it ends.
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
