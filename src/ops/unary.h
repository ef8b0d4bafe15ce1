#pragma once

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/op.h"

// Elementwise ops of one tensor. Each has a name, signature, summary, and two expressions: the value of a row x, and
// the gradient of x from the gradient g of the result and a row that forward saved.
namespace distag::ops {

// A text as a template argument.
template <size_t N>
struct Name {
  char text[N];
  constexpr Name(const char (&from)[N]) { std::copy_n(from, N, text); }
};

// Integers and bools are computed as float32.
inline Tensor floating_row_major(const Tensor& x) {
  return (is_floating(x.dtype()) ? x : as_dtype(x, Dtype::kFloat32)).contiguous();
}

// gradient(g, s) of the gradient of the result and the saved tensor, in place of g if g is exclusive.
template <typename F>
Tensor gradient_by(const char* op, const F& gradient, const Tensor& g, const Tensor& saved) {
  return computed(op, output_for(g, saved.dtype(), saved.shape()), gradient, g, saved);
}

enum class Saves { kResult, kArgument };

template <Name kName, Saves kSaves, auto kValue, auto kGradient>
struct UnaryOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved* saved) {
    const Tensor x = floating_row_major(inputs[0]);
    Tensor y = value_of(kName.text, kValue, x);
    if (saved != nullptr) saved->tensors = {kSaves == Saves::kResult ? y.snapshot() : x.snapshot()};
    return y;
  }
  static Tensor backward(const Saved& saved, const Tensor& g) {
    return gradient_by(kName.text, kGradient, g, saved.tensors[0]);
  }
};

// An op whose gradient depends on g and the result y, or on g and the argument x.
template <Name kName, auto kValue, auto kGradient>
constexpr Op of_result(const char* signature, const char* summary) {
  return make_op<UnaryOp<kName, Saves::kResult, kValue, kGradient>>(signature, summary, kCheap);
}

template <Name kName, auto kValue, auto kGradient>
constexpr Op of_argument(const char* signature, const char* summary) {
  return make_op<UnaryOp<kName, Saves::kArgument, kValue, kGradient>>(signature, summary, kCheap);
}

// An op with attributes: a Curve is made from them, and has value(x) and gradient(g, x).
template <Name kName, typename Curve>
struct CurveOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor x = floating_row_major(inputs[0]);
    if (saved != nullptr) saved->attributes = attributes, saved->tensors = {x.snapshot()};
    const auto value = [curve = Curve(attributes)](const auto& row) { return curve.value(row); };
    return value_of(kName.text, value, x);
  }
  static Tensor backward(const Saved& saved, const Tensor& g) {
    const auto gradient = [curve = Curve(saved.attributes)](const auto& of_y, const auto& x) {
      return curve.gradient(of_y, x);
    };
    return gradient_by(kName.text, gradient, g, saved.tensors[0]);
  }
};

template <Name kName, typename Curve>
constexpr Op of_curve(const char* signature, const char* summary) {
  return make_op<CurveOp<kName, Curve>>(signature, summary, kCheap);
}

}  // namespace distag::ops
