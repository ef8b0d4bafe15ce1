#pragma once

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/op.h"

// Elementwise ops of one tensor, each made of its name, signature, summary, and two expressions: the value of a row x,
// and the gradient of x from the gradient g of the result and a row that forward saved.
namespace distag::ops {

// A text as an argument of a template.
template <size_t N>
struct Name {
  char text[N];
  constexpr Name(const char (&from)[N]) { std::copy_n(from, N, text); }
};

// Integers and bools are computed as float32.
inline Tensor floating_row_major(const Tensor& x) {
  return (is_floating(x.dtype()) ? x : as_dtype(x, Dtype::kFloat32)).contiguous();
}

// value(x), in the shape and dtype of a row-major x.
template <typename F>
Tensor value_of(const char* op, const F& value, const Tensor& x) {
  Tensor out = Tensor::empty(x.dtype(), x.shape());
  dispatch_floating(op, x.dtype(), [&]<typename T>(T) { compute_alike<T>(out, value, x); });
  return out;
}

// gradient(g, s) of the gradient of the result and what was saved, in place of g where that is exclusive.
template <typename F>
Tensors gradients_of(const char* op, const F& gradient, const Tensor& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  const Tensor g = std::move(gradients[0]);
  Tensor out = output_for(g, saved.dtype(), saved.shape());
  dispatch_floating(op, saved.dtype(), [&]<typename T>(T) { compute_alike<T>(out, gradient, g, saved); });
  return {out};
}

enum class Saves { kResult, kArgument };

template <Name kName, Saves kSaves, auto kValue, auto kGradient>
struct UnaryOp {
  static Tensors forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
    const Tensor x = floating_row_major(inputs[0]);
    Tensor y = value_of(kName.text, kValue, x);
    if (saved != nullptr) saved->tensors = {kSaves == Saves::kResult ? y.snapshot() : x.snapshot()};
    return {y};
  }
  static Tensors backward(const Saved& saved, Tensors gradients) {
    return gradients_of(kName.text, kGradient, saved.tensors[0], std::move(gradients));
  }
};

enum Passes : bool { kSeveral, kOnePass };

template <typename Made>
constexpr Op elementwise_op(const char* name, const char* signature, const char* summary, Passes passes = kSeveral) {
  return {.name = name,
          .signature = signature,
          .summary = summary,
          .forward = Made::forward,
          .backward = Made::backward,
          .is_cheap = true,
          .is_one_pass = passes == kOnePass};
}

// An op whose gradient is one of g and the result y, or of g and the argument x.
template <Name kName, auto kValue, auto kGradient>
constexpr Op of_result(const char* signature, const char* summary) {
  return elementwise_op<UnaryOp<kName, Saves::kResult, kValue, kGradient>>(kName.text, signature, summary);
}

template <Name kName, auto kValue, auto kGradient>
constexpr Op of_argument(const char* signature, const char* summary) {
  return elementwise_op<UnaryOp<kName, Saves::kArgument, kValue, kGradient>>(kName.text, signature, summary);
}

// An op with attributes: a Curve is made of them, and has value(x) and gradient(g, x).
template <Name kName, typename Curve>
constexpr Op of_curve(const char* signature, const char* summary) {
  return {.name = kName.text,
          .signature = signature,
          .summary = summary,
          .forward =
              [](std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
                const Tensor x = floating_row_major(inputs[0]);
                if (saved != nullptr) saved->attributes = attributes, saved->tensors = {x.snapshot()};
                const Curve curve(attributes);
                return Tensors{value_of(
                    kName.text, [curve](const auto& row) { return curve.value(row); }, x)};
              },
          .backward =
              [](const Saved& saved, Tensors gradients) {
                const Curve curve(saved.attributes);
                const auto gradient = [curve](const auto& g, const auto& x) { return curve.gradient(g, x); };
                return gradients_of(kName.text, gradient, saved.tensors[0], std::move(gradients));
              },
          .is_cheap = true};
}

}  // namespace distag::ops
