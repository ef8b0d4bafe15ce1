#pragma once

namespace distag {

// For code that may block long in its own way: the calling thread counts as waiting, so that others run what is posted
// to its pool meanwhile. Does nothing on a thread that belongs to no pool, or if all others wait already. Lives on the
// stack; does not nest.
class PoolPlaceLeft {
 public:
  PoolPlaceLeft() noexcept;
  ~PoolPlaceLeft();
  PoolPlaceLeft(const PoolPlaceLeft&) = delete;
  PoolPlaceLeft& operator=(const PoolPlaceLeft&) = delete;
};

}  // namespace distag
