#include "group/vote_ticks.h"

#include <algorithm>

namespace distag {
namespace {

constexpr Nanos kLastPace = 20 * kMillisecond;
constexpr Nanos kLater = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

void VoteTicks::pace(Nanos first) {
  assert_on_loop(loop_);
  if (timer_ != 0) return;
  pace_ = pace_ == 0 ? first : std::min(2 * pace_, kLastPace);
  timer_ = loop_.start_timer(deadline_after(loop_.now(), pace_), [this] {
    timer_ = 0;
    on_tick_();
  });
}

void VoteTicks::tick_later() noexcept {
  if (std::exchange(later_->is_set, true)) return;
  loop_.start_timer(later_->place, deadline_after(loop_.now(), kLater),
                    [this, later = later_, alive = std::weak_ptr<char>(alive_)] {
                      later->is_set = false;
                      if (!alive.expired()) on_tick_();
                    });
}

void VoteTicks::stop() {
  assert_on_loop(loop_);
  if (timer_ != 0) loop_.cancel_timer(std::exchange(timer_, 0));
}

}  // namespace distag
