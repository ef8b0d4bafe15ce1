#pragma once

#include <array>
#include <cstdint>

#include "ops/simd.h"

namespace distag::ops {

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011). Its 32-bit words are
// kept in 64 bits, where their products fit: so a loop over it vectorises without a shuffle.
using PhiloxCounter = std::array<uint64_t, 4>;
using PhiloxKey = std::array<uint64_t, 2>;

DISTAG_INLINE PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  constexpr uint64_t kWord = 0xFFFFFFFFu;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = 0xD2511F53u * counter[0];
    const uint64_t product1 = 0xCD9E8D57u * counter[2];
    counter = {(product1 >> 32) ^ counter[1] ^ key[0], product1 & kWord, (product0 >> 32) ^ counter[3] ^ key[1],
               product0 & kWord};
    key[0] = (key[0] + 0x9E3779B9u) & kWord;
    key[1] = (key[1] + 0xBB67AE85u) & kWord;
  }
  return counter;
}

}  // namespace distag::ops
