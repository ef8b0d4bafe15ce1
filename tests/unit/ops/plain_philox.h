#pragma once

#include <array>
#include <cstdint>

namespace distag::testing {

using PhiloxWords = std::array<uint32_t, 4>;

// Philox 4x32-10 as the paper has it, of one block.
inline PhiloxWords plain_philox(PhiloxWords words, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * words[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * words[2];
    words = {static_cast<uint32_t>(product1 >> 32) ^ words[1] ^ key[0], static_cast<uint32_t>(product1),
             static_cast<uint32_t>(product0 >> 32) ^ words[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return words;
}

// The words of block `number` of the seed: w1 w0 and w3 w2.
inline std::array<uint64_t, 2> plain_block(uint64_t seed, uint64_t number) {
  const PhiloxWords words = plain_philox({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0},
                                         {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return {uint64_t{words[1]} << 32 | words[0], uint64_t{words[3]} << 32 | words[2]};
}

}  // namespace distag::testing
