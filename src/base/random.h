#pragma once

#include <cstdint>

namespace distag {

// Source of incarnations, ids that others must not guess, and jitter. Given to a worker, so that a simulation replays.
class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t next() = 0;
};

// From the operating system.
class SystemRandom final : public Random {
 public:
  uint64_t next() override;
};

// SplitMix64 (Steele, Lea, Flood 2014): the same numbers for the same seed.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}
  uint64_t next() override {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace distag
