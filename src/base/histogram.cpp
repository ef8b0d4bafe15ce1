#include "base/histogram.h"

#include <algorithm>
#include <bit>

namespace distag {
namespace {

// For each number of binary digits, the first bound that such a time can lie below: at most two more bounds lie between
// it and the right one.
constexpr auto kFirstBounds = [] {
  std::array<uint8_t, 65> first{};
  for (size_t digits = 0; digits < first.size(); ++digits) {
    const uint64_t least = digits == 0 ? 0 : uint64_t{1} << (digits - 1);
    uint8_t bound = 0;
    while (bound < Histogram::kBounds.size() && static_cast<uint64_t>(Histogram::kBounds[bound]) < least) ++bound;
    first[digits] = bound;
  }
  return first;
}();

}  // namespace

void Histogram::add(Nanos taken) noexcept {
  taken = std::max<Nanos>(taken, 0);
  size_t bucket = kFirstBounds[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(taken)))];
  while (bucket < kBounds.size() && taken > kBounds[bucket]) ++bucket;
  buckets_[bucket].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(taken, std::memory_order_relaxed);
}

Histogram::Counts Histogram::counts() const noexcept {
  Counts counts;
  for (size_t i = 0; i < counts.buckets.size(); ++i) counts.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
  counts.sum = sum_.load(std::memory_order_relaxed);
  return counts;
}

}  // namespace distag
