#pragma once

#include <span>

#include "ops/elementwise.h"
#include "ops/op.h"

namespace distag::ops {

// Integers wrap around; bools are added as "or" and multiplied as "and".
struct AddOf {
  template <typename T>
  DISTAG_INLINE static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, int64_t>)
      return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    if constexpr (std::is_same_v<T, Bool>) return (a | b) != 0 ? 1 : 0;
    if constexpr (kIsFloating<T>) return a + b;
  }
};

struct SubOf {
  template <typename T>
  DISTAG_INLINE static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, int64_t>)
      return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
    if constexpr (kIsFloating<T>) return a - b;
  }
};

struct MulOf {
  template <typename T>
  DISTAG_INLINE static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, int64_t>)
      return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    if constexpr (std::is_same_v<T, Bool>) return a != 0 && b != 0 ? 1 : 0;
    if constexpr (kIsFloating<T>) return a * b;
  }
};

struct DivOf {
  template <typename T>
  DISTAG_INLINE static T apply(T a, T b) {
    return a / b;
  }
};

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

// F(a, b) of floating tensors in the shape of a, to which b broadcasts; in place of `a` where that is exclusive.
template <typename F>
Tensor combine(const char* op, const Tensor& a, const Tensor& b) {
  Tensor out = output_for(a, a.dtype(), a.shape());
  dispatch_floating(op, a.dtype(), [&]<typename T>(T) { binary_into<F, T, T, T>(out, a, b); });
  return out;
}

}  // namespace distag::ops
