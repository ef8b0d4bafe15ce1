#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/dispatch.h"
#include "ops/simd.h"

namespace distag::ops {

// All sums of this library are computed here, from terms that a function returns, or by these steps.
//
// Each reduction has a start, a type for its total, a step that joins an element to the total, and an end that makes
// the result of the total. Floats are summed in double.

template <typename T>
struct Sum {
  using Total = std::conditional_t<std::is_same_v<T, float>, double, T>;
  static constexpr Total kStart = Total(0);
  DISTAG_INLINE static Total join(Total a, Total b) {
    if constexpr (std::is_same_v<T, int64_t>) {
      return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return static_cast<Total>(a + b);
    }
  }
  DISTAG_INLINE static T finish(Total total, int64_t) { return static_cast<T>(total); }
};

// Divides before rounding, so that no sum is too large for T.
template <typename T>
struct Mean : Sum<T> {
  using Total = typename Sum<T>::Total;
  DISTAG_INLINE static T finish(Total total, int64_t count) {
    if constexpr (kIsFloating<T>) return static_cast<T>(total / static_cast<Total>(count));
    return static_cast<T>(total);
  }
};

template <typename T>
struct Maximum {
  using Total = T;
  static constexpr T kStart = kIsFloating<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  DISTAG_INLINE static T join(T a, T b) {
    const T larger = b > a ? b : a;
    return b != b ? b : larger;
  }
  DISTAG_INLINE static T finish(T total, int64_t) { return total; }
};

template <typename T>
struct Minimum {
  using Total = T;
  static constexpr T kStart = kIsFloating<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  DISTAG_INLINE static T join(T a, T b) {
    const T smaller = b < a ? b : a;
    return b != b ? b : smaller;
  }
  DISTAG_INLINE static T finish(T total, int64_t) { return total; }
};

// A row is reduced in blocks; in a block, each lane takes every kLanes-th element. So the order of a sum is fixed, it
// vectorises, and its error grows with the number of blocks, not of elements.
inline constexpr int64_t kLanes = 32;
inline constexpr int64_t kBlock = 32 * kLanes;

// Reduces term(first) to term(last - 1).
template <typename F, int64_t kWidth = kLanes, typename Term>
DISTAG_INLINE typename F::Total reduce_lanes(int64_t first, int64_t last, Term term) {
  typename F::Total lanes[kWidth];
  for (int64_t l = 0; l < kWidth; ++l) lanes[l] = F::kStart;
  int64_t i = first;
  for (; i + kWidth <= last; i += kWidth) {
    for (int64_t l = 0; l < kWidth; ++l) lanes[l] = F::join(lanes[l], term(i + l));
  }
  for (int64_t l = 0; l < last - i; ++l) lanes[l] = F::join(lanes[l], term(i + l));
  DISTAG_UNROLL
  for (int64_t width = kWidth / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] = F::join(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

// Reduces term(0) to term(count - 1), each an F::Total. The term of a kernel must be DISTAG_INLINE, as the kernel is.
template <typename F, typename Term>
DISTAG_INLINE typename F::Total reduce_terms(int64_t count, Term term) {
  if (count <= kBlock) return reduce_lanes<F>(0, count, term);
  typename F::Total total = F::kStart;
  for (int64_t i = 0; i < count; i += kBlock) {
    total = F::join(total, reduce_lanes<F>(i, std::min(i + kBlock, count), term));
  }
  return total;
}

}  // namespace distag::ops
