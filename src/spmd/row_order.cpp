#include "spmd/row_order.h"

#include <cmath>

namespace distag::spmd {
namespace {

constexpr uint32_t kRounds = 8;

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011), its first two words. The vectors of ops/philox.h have no room for a
// second counter.
uint64_t philox(uint32_t x, uint32_t round, uint64_t epoch, uint64_t seed) {
  uint32_t words[4] = {x, round, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32)};
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int i = 0; i < 10; ++i) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * words[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * words[2];
    words[0] = static_cast<uint32_t>(product1 >> 32) ^ words[1] ^ key0;
    words[1] = static_cast<uint32_t>(product1);
    words[2] = static_cast<uint32_t>(product0 >> 32) ^ words[3] ^ key1;
    words[3] = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return uint64_t{words[1]} << 32 | words[0];
}

// The least number whose square is at least `count`; a root in double may be off by one.
uint64_t root_of(uint64_t count) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(count)));
  while (root * root < count) ++root;
  while (root > 1 && (root - 1) * (root - 1) >= count) --root;
  return root == 0 ? 1 : root;
}

}  // namespace

RowOrder::RowOrder(int64_t count)
    : count_(static_cast<uint64_t>(count)), seed_(0), height_(1), width_(1), is_shuffled_(false) {}

RowOrder::RowOrder(int64_t count, uint64_t seed)
    : count_(static_cast<uint64_t>(count)),
      seed_(seed),
      height_(root_of(count_)),
      width_(count_ / height_ + (count_ % height_ != 0 ? 1 : 0)),
      is_shuffled_(count > 1) {}

// A Feistel network on the row and column of a place in a grid (Black, Rogaway: Ciphers with arbitrary finite domains,
// 2002), repeated until the place is below count: at most one row of the grid lies beyond it.
int64_t RowOrder::row(uint64_t epoch, int64_t index) const {
  if (!is_shuffled_) return index;
  auto place = static_cast<uint64_t>(index);
  do {
    uint64_t row = place / width_;
    uint64_t column = place % width_;
    for (uint32_t round = 0; round < kRounds; round += 2) {
      row = (row + philox(static_cast<uint32_t>(column), round, epoch, seed_) % height_) % height_;
      column = (column + philox(static_cast<uint32_t>(row), round + 1, epoch, seed_) % width_) % width_;
    }
    place = row * width_ + column;
  } while (place >= count_);
  return static_cast<int64_t>(place);
}

}  // namespace distag::spmd
