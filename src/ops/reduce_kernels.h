#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/dispatch.h"
#include "ops/simd.h"

namespace distag::ops {

// What a reduction starts from, how it takes in an element, and in what type it adds up the parts of a long row.

template <typename T>
struct Sum {
  using Total = std::conditional_t<std::is_same_v<T, float>, double, T>;
  static constexpr T kStart = T(0);
  template <typename U>
  DISTAG_INLINE static U join(U a, U b) {
    if constexpr (std::is_same_v<U, int64_t>) {
      return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    } else {
      return static_cast<U>(a + b);
    }
  }
};

template <typename T>
struct Maximum {
  using Total = T;
  static constexpr T kStart = kIsFloating<T> ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
  DISTAG_INLINE static T join(T a, T b) { return b > a || b != b ? b : a; }
};

template <typename T>
struct Minimum {
  using Total = T;
  static constexpr T kStart = kIsFloating<T> ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  DISTAG_INLINE static T join(T a, T b) { return b < a || b != b ? b : a; }
};

// A row is taken in blocks; in a block, each of the lanes takes every kLanes-th element. So the order of a sum is
// fixed, it vectorises, and its error grows with the number of blocks, not of elements.
inline constexpr int64_t kLanes = 32;
inline constexpr int64_t kBlock = 32 * kLanes;

template <typename F, typename T>
DISTAG_INLINE T reduce_lanes(const T* x, int64_t count) {
  T lanes[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lanes[l] = F::kStart;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] = F::join(lanes[l], x[i + l]);
  }
  for (int64_t l = 0; l < count - i; ++l) lanes[l] = F::join(lanes[l], x[i + l]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] = F::join(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

template <typename F, typename T>
DISTAG_INLINE T reduce_row(const T* x, int64_t count) {
  if (count <= kBlock) return reduce_lanes<F, T>(x, count);
  using Total = typename F::Total;
  Total total = Total(F::kStart);
  for (int64_t i = 0; i < count; i += kBlock) {
    total = F::join(total, Total(reduce_lanes<F, T>(x + i, std::min(kBlock, count - i))));
  }
  return static_cast<T>(total);
}

// [rows, count] -> [rows]
template <typename F, typename T>
struct ReduceRows {
  DISTAG_INLINE static void run(T* out, const T* x, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; ++r) out[r] = reduce_row<F, T>(x + r * count, count);
  }
};

// [outer, count, inner] -> [outer, inner]: rows are added to a strip of columns that stays in the cache, at most
// kRowsPerPart of them before the part joins the total.
template <typename F, typename T>
struct ReduceColumns {
  static constexpr int64_t kStrip = 512;
  static constexpr int64_t kRowsPerPart = 128;

  DISTAG_INLINE static void add_rows(T* part, const T* x, int64_t rows, int64_t inner, int64_t width) {
    for (int64_t j = 0; j < width; ++j) part[j] = F::kStart;
    for (int64_t i = 0; i < rows; ++i, x += inner) {
      for (int64_t j = 0; j < width; ++j) part[j] = F::join(part[j], x[j]);
    }
  }

  DISTAG_INLINE static void strip(T* out, const T* x, int64_t count, int64_t inner, int64_t width) {
    if (count <= kRowsPerPart) return add_rows(out, x, count, inner, width);
    using Total = typename F::Total;
    T part[kStrip];
    Total total[kStrip];
    for (int64_t j = 0; j < width; ++j) total[j] = Total(F::kStart);
    for (int64_t i = 0; i < count; i += kRowsPerPart) {
      add_rows(part, x + i * inner, std::min(kRowsPerPart, count - i), inner, width);
      for (int64_t j = 0; j < width; ++j) total[j] = F::join(total[j], Total(part[j]));
    }
    for (int64_t j = 0; j < width; ++j) out[j] = static_cast<T>(total[j]);
  }

  DISTAG_INLINE static void run(T* out, const T* x, int64_t outer, int64_t count, int64_t inner) {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t j = 0; j < inner; j += kStrip) {
        strip(out + o * inner + j, x + o * count * inner + j, count, inner, std::min(kStrip, inner - j));
      }
    }
  }
};

}  // namespace distag::ops
