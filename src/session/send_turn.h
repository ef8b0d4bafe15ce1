#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "base/loop.h"

namespace distag {

// How much a task of one stream sends before the loop looks at everything else again. The turn that has sent enough
// posts the next one, which then does all the work: no other turn begins before it. On the loop.
class SendTurn {
 public:
  // `go_on` begins the next turn. It does not run once `alive` has expired.
  SendTurn(Loop& loop, std::weak_ptr<char> alive, std::function<void()> go_on)
      : loop_(loop), alive_(std::move(alive)), go_on_(std::move(go_on)) {}

  // Returns false when the next turn is posted already.
  bool begin() {
    if (!is_posted_) bytes_ = 0;
    return !is_posted_;
  }
  // Returns false when this turn has sent enough. On a loop that is stopping no turn follows. Throws when there is no
  // memory for the task; the tick resumes then.
  bool has_more() { return !is_posted_ && (bytes_ < kBytes || !post_next()); }
  void note_sent(size_t bytes) { bytes_ += bytes + kBytesPerMessage; }

 private:
  // A message costs as much time as kBytesPerMessage.
  static constexpr size_t kBytes = size_t{4} << 20;
  static constexpr size_t kBytesPerMessage = kBytes / 64;

  bool post_next() {
    is_posted_ = loop_.post([this, alive = alive_] {
      if (alive.expired()) return;
      is_posted_ = false;
      go_on_();
    });
    return is_posted_;
  }

  Loop& loop_;
  const std::weak_ptr<char> alive_;
  const std::function<void()> go_on_;
  size_t bytes_ = 0;        // sent in this turn
  bool is_posted_ = false;  // the next turn
};

}  // namespace distag
