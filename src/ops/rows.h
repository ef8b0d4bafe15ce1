#pragma once

#include <tuple>

#include "ops/elementwise.h"
#include "ops/reduce_kernels.h"

// Programs over the rows of row-major tensors. A program consists of expressions of xtensor on a row, evaluated by
// put() and the reductions below. All its operands come from for_rows(), which compiles it for each instruction set. So
// its lambda must be DISTAG_INLINE_LAMBDA: code that is not inlined is compiled for the baseline.
//
//   for_rows(rows, count, [](auto y, auto x, double mean) DISTAG_INLINE_LAMBDA { put(y, x - mean); },
//            Rows(out), Rows(in), OfEach(means));
//
// A number in an expression must be a local variable of the program: a number that is read from memory in each step
// does not vectorise.
namespace distag::ops {

// Operands of for_rows(). Rows: a separate row for each row, contiguous in memory.
template <typename T>
struct Rows {
  explicit Rows(T* first) : data(first) {}
  DISTAG_INLINE auto at(int64_t r, int64_t count) const { return row(data + r * count, count); }
  T* data;
};

// The same, for an operand whose rows have another length.
template <typename T>
struct RowsOf {
  RowsOf(T* first, int64_t own_length) : data(first), length(own_length) {}
  DISTAG_INLINE auto at(int64_t r, int64_t) const { return row(data + r * length, length); }
  T* data;
  int64_t length;
};

// The same row for all rows.
template <typename T>
struct SameRow {
  explicit SameRow(T* first) : data(first) {}
  DISTAG_INLINE auto at(int64_t, int64_t count) const { return row(data, count); }
  T* data;
};

// A number for each row, which the program takes by value, or by reference to write it.
template <typename T>
struct OfEach {
  explicit OfEach(T* first) : data(first) {}
  DISTAG_INLINE T& at(int64_t r, int64_t) const { return data[r]; }
  T* data;
};

// The same value for all rows.
template <typename T>
struct Same {
  explicit Same(T given) : value(given) {}
  DISTAG_INLINE T at(int64_t, int64_t) const { return value; }
  T value;
};

template <typename Program, typename... Operands>
struct RowProgram {
  DISTAG_INLINE static void run(const Program* program, int64_t rows, int64_t count, Operands... operands) {
    for (int64_t r = 0; r < rows; ++r) (*program)(operands.at(r, count)...);
  }
};

// Calls program(operand of the row, ...) for each of `rows` rows of `count` elements.
template <typename Program, typename... Operands>
void for_rows(int64_t rows, int64_t count, const Program& program, Operands... operands) {
  simd::run<RowProgram<Program, Operands...>, const Program*, int64_t, int64_t, Operands...>(&program, rows, count,
                                                                                             operands...);
}

// The length of the rows of an expression: that of its first row.
template <typename First, typename... Others>
DISTAG_INLINE int64_t length_of(const First& first, const Others&... others) {
  if constexpr (xt::is_xscalar<First>::value) {
    return length_of(others...);
  } else if constexpr (requires { first.arguments(); }) {
    return std::apply([](const auto&... parts) DISTAG_INLINE_LAMBDA { return length_of(parts...); }, first.arguments());
  } else {
    return static_cast<int64_t>(first.size());
  }
}

// Writes an expression to a row, which may be an operand of the expression.
template <typename Out, typename Expression>
DISTAG_INLINE void put(Out& out, const Expression& e) {
  auto* to = out.data();
  const auto count = static_cast<int64_t>(out.size());
  DISTAG_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<Element<Out>>(e.data_element(static_cast<size_t>(i)));
}

// The elements of an expression joined by F, in the order of reduce_terms().
template <typename F, typename Expression>
DISTAG_INLINE typename F::Total reduced(const Expression& e) {
  return reduce_terms<F>(length_of(e), [&e](int64_t i) DISTAG_INLINE_LAMBDA {
    return static_cast<typename F::Total>(e.data_element(static_cast<size_t>(i)));
  });
}

template <typename Expression>
DISTAG_INLINE auto sum_of(const Expression& e) {
  return reduced<Sum<Element<Expression>>>(e);
}

// For floats.
template <typename Expression>
DISTAG_INLINE auto mean_of(const Expression& e) {
  const auto total = sum_of(e);
  return total / static_cast<decltype(total)>(length_of(e));
}

}  // namespace distag::ops
