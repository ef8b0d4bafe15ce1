#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace distag {

// Counts events by how long they took. Any thread, without locks.
class Histogram {
 public:
  // Upper bounds of the buckets, inclusive; one more bucket is beyond the last.
  static constexpr std::array<Nanos, 22> kBounds = {
      10 * kMicrosecond,   25 * kMicrosecond,  50 * kMicrosecond,  100 * kMicrosecond,
      250 * kMicrosecond,  500 * kMicrosecond, kMillisecond,       2500 * kMicrosecond,
      5 * kMillisecond,    10 * kMillisecond,  25 * kMillisecond,  50 * kMillisecond,
      100 * kMillisecond,  250 * kMillisecond, 500 * kMillisecond, kSecond,
      2500 * kMillisecond, 5 * kSecond,        10 * kSecond,       25 * kSecond,
      50 * kSecond,        100 * kSecond};

  // The events of each bucket, and the time of all. An event added meanwhile may be in one and not in the other.
  struct Counts {
    std::array<uint64_t, kBounds.size() + 1> buckets{};
    Nanos sum = 0;
  };

  void add(Nanos taken) noexcept;
  Counts counts() const noexcept;

 private:
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> buckets_{};
  std::atomic<Nanos> sum_{0};
};

}  // namespace distag
