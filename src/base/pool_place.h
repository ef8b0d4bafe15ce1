#pragma once

namespace distag {

// Around code that may block for long in a way of its own: the calling thread counts as one that waits, so others run
// what is posted to its pool meanwhile. Nothing on a thread that belongs to no pool, or where all others wait already.
// Lives on the stack; does not nest.
class PoolPlaceLeft {
 public:
  PoolPlaceLeft() noexcept;
  ~PoolPlaceLeft();
  PoolPlaceLeft(const PoolPlaceLeft&) = delete;
  PoolPlaceLeft& operator=(const PoolPlaceLeft&) = delete;
};

}  // namespace distag
