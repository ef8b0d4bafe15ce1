#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/simd.h"

namespace distag::ops {

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011), for as many blocks at
// once as a vector of kBytes bytes has 64-bit numbers. Block j has counter (low j, high j, 0, 0) and key (low seed,
// high seed); its result is the words w0 to w3.
//
// Words are in the low halves of 64 bits, where their products fit. The bits above them are meaningless.
template <size_t kBytes, typename Wide = uint64_t>
class Philox {
 public:
  static constexpr int64_t kBlocks = static_cast<int64_t>(kBytes / sizeof(Wide));

  // Writes the words of `blocks` blocks from `first` on: w1 w0, then w3 w2, as 64-bit numbers; or w1, then w3. Writes
  // whole vectors: `out` must have room for `blocks`, rounded up to a multiple of kBlocks.
  template <typename Number>
  DISTAG_INLINE static void fill(Number* out, int64_t blocks, uint64_t seed, uint64_t first) {
    V block;
    for (int64_t i = 0; i < kBlocks; ++i) block[i] = first + static_cast<uint64_t>(i);
    for (int64_t done = 0; done < blocks; done += kBlocks) {
      V words[4] = {block, block >> 32, V{}, V{}};
      run_rounds(words, seed);
      store(out + 2 * done, words);
      block += static_cast<uint64_t>(kBlocks);
    }
  }

 private:
  using V [[gnu::vector_size(kBytes)]] = Wide;
  static constexpr uint64_t kWord = 0xFFFFFFFFu;

  // Multiplies the low halves.
  DISTAG_INLINE static void multiply(V& product, const V& words, const V& factor) {
#if defined(__x86_64__) && !defined(__clang__)
    // GCC would multiply all 64 bits.
    if constexpr (kBytes == 16) {
      product = words;
      asm("pmuludq %1, %0" : "+x"(product) : "x"(factor));
    } else {
      asm("vpmuludq %2, %1, %0" : "=v"(product) : "v"(words), "v"(factor));
    }
#else
    product = (words & kWord) * factor;
#endif
  }

  DISTAG_INLINE static void run_rounds(V (&words)[4], uint64_t seed) {
    const V factor0 = V{} + 0xD2511F53u;
    const V factor1 = V{} + 0xCD9E8D57u;
    uint64_t key0 = seed & kWord;
    uint64_t key1 = seed >> 32;
    DISTAG_UNROLL
    for (int round = 0; round < 10; ++round) {
      V product0, product1;
      multiply(product0, words[0], factor0);
      multiply(product1, words[2], factor1);
      words[0] = (product1 >> 32) ^ words[1] ^ key0;
      words[1] = product1;
      words[2] = (product0 >> 32) ^ words[3] ^ key1;
      words[3] = product0;
      key0 = (key0 + 0x9E3779B9u) & kWord;
      key1 = (key1 + 0xBB67AE85u) & kWord;
    }
  }

  DISTAG_INLINE static void store(uint32_t* out, const V (&words)[4]) {
    const V both = (words[1] & kWord) | words[3] << 32;
    __builtin_memcpy(out, &both, sizeof both);
  }

  DISTAG_INLINE static void store(uint64_t* out, const V (&words)[4]) {
    const V even = (words[0] & kWord) | words[1] << 32;
    const V odd = (words[2] & kWord) | words[3] << 32;
    V low, high;
    if constexpr (kBlocks == 2) {
      low = __builtin_shufflevector(even, odd, 0, 2);
      high = __builtin_shufflevector(even, odd, 1, 3);
    } else if constexpr (kBlocks == 4) {
      low = __builtin_shufflevector(even, odd, 0, 4, 1, 5);
      high = __builtin_shufflevector(even, odd, 2, 6, 3, 7);
    } else {
      low = __builtin_shufflevector(even, odd, 0, 8, 1, 9, 2, 10, 3, 11);
      high = __builtin_shufflevector(even, odd, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    __builtin_memcpy(out, &low, sizeof low);
    __builtin_memcpy(out + kBlocks, &high, sizeof high);
  }
};

}  // namespace distag::ops
