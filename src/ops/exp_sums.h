#pragma once

#include <limits>
#include <type_traits>

#include "ops/math.h"
#include "ops/rows.h"

// Sums of exponentials of rows, for programs over rows.
namespace distag::ops {

// The larger number. A NaN beside it may be ignored: then the exponentials have a NaN, and so has their sum.
template <typename T>
struct Larger {
  using Total = T;
  static constexpr T kStart = -std::numeric_limits<T>::infinity();
  DISTAG_INLINE static T join(T a, T b) { return b > a ? b : a; }
};

template <typename Row>
DISTAG_INLINE auto largest_of(const Row& x) {
  using T = Element<Row>;
  return reduce_lanes<Larger<T>, 256 / sizeof(T)>(
      0, length_of(x), [&x](int64_t i) DISTAG_INLINE_LAMBDA { return x.data_element(static_cast<size_t>(i)); });
}

// The index of the first element equal to `value`, which must exist.
template <typename Row, typename T>
DISTAG_INLINE size_t place_of(const Row& x, T value) {
  size_t i = 0;
  while (x.data_element(i) != value) ++i;
  return i;
}

// log(sum(exp(x - largest))) for the largest element of x; `terms` is room for the terms of the sum. If the largest
// outweighs all others, only the sum of the others keeps the digits.
template <typename Terms, typename Row, typename T>
DISTAG_INLINE auto log_sum_below_largest(Terms& terms, const Row& x, T largest) {
  using Total = typename Sum<T>::Total;
  constexpr Total kHasDigits = std::is_same_v<T, Total> ? Total(1.5) : Total(1 + 0x1p-20);
  put(terms, each(math::ExpNotPositive(), x - largest));
  const Total sum = sum_of(terms);
  if (!(sum < kHasDigits)) return math::log(sum);
  terms.data_element(place_of(x, largest)) = T(0);
  return math::log1p_up_to_1(sum_of(terms));
}

}  // namespace distag::ops
