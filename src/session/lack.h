#pragma once

#include <optional>

#include "base/clock.h"
#include "base/error.h"

namespace distag {

// A resource that a worker lacks (descriptors, memory, local ports), as failed attempts show. A lack lasts from the
// first attempt that fails to the first that succeeds. On the loop.
class Lack {
 public:
  // A lack also ends after `patience` without a failed attempt.
  explicit Lack(Nanos patience = kNever) : patience_(patience) {}

  // An attempt has failed. `why` is OUT_OF_MEMORY and names the cure.
  void note(const Error& why, Nanos now) noexcept;
  // An attempt is under way and has not failed yet.
  void try_again(Nanos now) noexcept;
  void end_attempt() { is_over_ = is_over_ || is_tried_; }
  // The resource is available again.
  void end() { is_over_ = true; }
  bool is_unmet() const { return !is_over_; }
  bool is_there(Nanos now) const { return !is_over_ && now - last_ < patience_; }
  // Whether an attempt failed after `then`, even if the lack is over.
  bool was_there_since(Nanos then) const { return last_ != kNone && last_ > then; }

  // The error of the latest lack.
  Error error() const { return error_ ? *error_ : Error(Status::kOutOfMemory, "no memory"); }
  Nanos since() const { return since_; }
  Nanos last() const { return last_; }  // time of the last failed attempt

  // The time for which the lack lasted since the last call. The time of an attempt counts once the attempt has failed.
  Nanos take_time(Nanos now) noexcept;

 private:
  void count(Nanos now) noexcept;

  static constexpr Nanos kNone = -1;

  Nanos patience_;
  std::optional<Error> error_;
  Nanos since_ = kNone;
  Nanos last_ = kNone;
  Nanos counted_at_ = kNone;
  Nanos time_ = 0;  // counted up to counted_at_
  bool is_over_ = true;
  bool is_tried_ = false;
};

}  // namespace distag
