#pragma once

#include <optional>

#include "base/clock.h"
#include "base/error.h"

namespace distag {

// Something that a worker lacks (descriptors, memory, local ports), as attempts that fail for it show. One lack lasts
// from the first attempt that fails to the first that does not. On the loop.
class Lack {
 public:
  // Without an attempt that fails for so long it is over as well.
  explicit Lack(Nanos patience = kNever) : patience_(patience) {}

  // An attempt has failed. `why`: OUT_OF_MEMORY, with the cure.
  void note(const Error& why, Nanos now) noexcept;
  // An attempt is under way; it has not failed.
  void try_again(Nanos now) noexcept;
  void end_attempt() { is_over_ = is_over_ || is_tried_; }
  // What was lacking is there.
  void end() { is_over_ = true; }
  bool is_unmet() const { return !is_over_; }
  bool is_there(Nanos now) const { return !is_over_ && now - last_ < patience_; }
  // Whether there was one that late, be it over or not.
  bool was_there_since(Nanos then) const { return last_ != kNone && last_ > then; }

  // Of the latest one.
  Error error() const { return error_ ? *error_ : Error(Status::kOutOfMemory, "no memory"); }
  Nanos since() const { return since_; }
  Nanos last() const { return last_; }  // attempt that failed

  // The time since the last question in which it was there. That of an attempt counts once it has failed.
  Nanos take_time(Nanos now) noexcept;

 private:
  void count(Nanos now) noexcept;

  static constexpr Nanos kNone = -1;

  Nanos patience_;
  std::optional<Error> error_;
  Nanos since_ = kNone;
  Nanos last_ = kNone;
  Nanos counted_at_ = kNone;
  Nanos time_ = 0;  // up to there
  bool is_over_ = true;
  bool is_tried_ = false;
};

}  // namespace distag
