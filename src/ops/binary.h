#pragma once

#include <span>

#include "ops/elementwise.h"
#include "ops/op.h"

namespace distag::ops {

// The type in which numbers of T are added and multiplied: integers wrap around.
template <typename T>
using Wrapping = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>;

template <typename Row>
inline constexpr bool kIsBool = std::is_same_v<Element<Row>, Bool>;

// Bools are added as "or" and multiplied as "and".
constexpr auto kSumOf = [](const auto& a, const auto& b) {
  if constexpr (kIsBool<decltype(a)>)
    return xt::not_equal(a | b, 0);
  else
    return a + b;
};
constexpr auto kDifferenceOf = [](const auto& a, const auto& b) { return a - b; };
constexpr auto kProductOf = [](const auto& a, const auto& b) {
  if constexpr (kIsBool<decltype(a)>)
    return xt::not_equal(a, 0) & xt::not_equal(b, 0);
  else
    return a * b;
};
constexpr auto kQuotientOf = [](const auto& a, const auto& b) { return a / b; };

// Two inputs made ready: one dtype, and the shape they broadcast to.
struct Pair {
  Tensor a;
  Tensor b;
  Dims shape;

  Pair(const char* op, std::span<const Tensor> inputs) : Pair(op, inputs, result_dtype(inputs[0], inputs[1])) {}
  Pair(const char* op, std::span<const Tensor> inputs, Dtype dtype)
      : a(as_dtype(inputs[0], dtype)),
        b(as_dtype(inputs[1], dtype)),
        shape(broadcast_shapes(op, inputs[0].shape(), inputs[1].shape())) {}
  Dtype dtype() const { return a.dtype(); }
};

// Saves for reduce_to the shapes and dtypes of both inputs.
inline void save_kinds(Saved* saved, std::span<const Tensor> inputs) {
  if (saved == nullptr) return;
  saved->shapes.reserve(inputs.size());
  saved->dtypes.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    saved->shapes.push_back(input.shape());
    saved->dtypes.push_back(input.dtype());
  }
}

inline Tensor gradient_of(const Saved& saved, size_t input, Tensor gradient) {
  return reduce_to(std::move(gradient), saved.shapes[input], saved.dtypes[input]);
}

}  // namespace distag::ops
