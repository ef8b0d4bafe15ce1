#pragma once

#include <optional>

#include "base/clock.h"
#include "base/error.h"

namespace distag {

// Something that this worker lacks (descriptors, memory, local ports), as attempts that fail for it show. It says
// nothing of a peer: what a peer owes counts from the last of them. On the loop.
class OwnLack {
 public:
  // Without an attempt that fails for so long it is over; kNever: at end() alone.
  explicit OwnLack(Nanos patience) : patience_(patience) {}

  // An attempt has failed. `why`: OUT_OF_MEMORY, with the cure.
  void note(const Error& why, Nanos now) noexcept;
  // An attempt has found what was lacking.
  void end() { is_over_ = true; }
  bool is_there(Nanos now) const { return !is_over_ && now - last_ < patience_; }

  // Of the latest one, whether it is over or not.
  Error error() const { return error_ ? *error_ : Error(Status::kOutOfMemory, "no memory"); }
  Nanos since() const { return since_; }
  Nanos last() const { return last_; }  // attempt that failed; 0: none has

 private:
  Nanos patience_;
  std::optional<Error> error_;
  Nanos since_ = 0;
  Nanos last_ = 0;
  bool is_over_ = true;
};

}  // namespace distag
