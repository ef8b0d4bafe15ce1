#pragma once

#include <cstdint>

namespace distag::spmd {

// The order of a data set's rows in each epoch: as they are, or a permutation of 0 .. count - 1 that the seed and the
// epoch determine, the same on every machine and in all releases. Any row is computed directly, and nothing is stored.
class RowOrder {
 public:
  // The identity in every epoch.
  explicit RowOrder(int64_t count);
  RowOrder(int64_t count, uint64_t seed);

  // The row at an index, which is below count.
  int64_t row(uint64_t epoch, int64_t index) const;

 private:
  const uint64_t count_;
  const uint64_t seed_;
  const uint64_t height_;  // times width: at least count, and less than count + height
  const uint64_t width_;
  const bool is_shuffled_;
};

}  // namespace distag::spmd
