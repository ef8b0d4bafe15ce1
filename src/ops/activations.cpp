// Elementwise ops of one tensor. Integers and bools are computed as float32.
#include "ops/builtins.h"
#include "ops/elementwise.h"
#include "ops/math.h"

namespace distag::ops {
namespace {

template <typename F>
Tensor unary(const char* op, const Tensor& x) {
  Tensor in = (is_floating(x.dtype()) ? x : as_dtype(x, Dtype::kFloat32)).contiguous();
  Tensor out = Tensor::empty(in.dtype(), in.shape());
  dispatch_floating(op, in.dtype(), [&]<typename T>(T) { unary_into<F, T, T>(out, in); });
  return out;
}

// The usual kind: the gradient is a function of itself and of the result, or of the argument.
template <typename F>
Tensor saving_result(const char* op, const Tensor& x, Saved* saved) {
  Tensor y = unary<F>(op, x);
  if (saved != nullptr) saved->tensors = {y.snapshot()};
  return y;
}

template <typename F>
Tensor saving_argument(const char* op, const Tensor& x, Saved* saved) {
  if (saved != nullptr) saved->tensors = {x.snapshot()};
  return unary<F>(op, x);
}

template <typename F>
Tensors scaled(const char* op, const Saved& saved, Tensors gradients) {
  if (gradients[0]) gradients[0] = scale_gradient<F>(op, gradients[0], saved.tensors[0]);
  return gradients;
}

// ---- exp ------------------------------------------------------------------------------------------------------------

struct ExpOf {
  template <typename T>
  DISTAG_INLINE static T apply(T x) {
    return math::exp(x);
  }
};

struct ExpGradient {
  template <typename T>
  DISTAG_INLINE static T apply(T g, T y) {
    return g * y;
  }
};

Tensors exp_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return {saving_result<ExpOf>("exp", inputs[0], saved)};
}

Tensors exp_backward(const Saved& saved, Tensors gradients) {
  return scaled<ExpGradient>("exp", saved, std::move(gradients));
}

}  // namespace

constexpr Op kExp{.name = "exp",
                  .signature = "exp(tensor x) -> tensor",
                  .summary = "e to the power of each element, in the shape of x.",
                  .forward = exp_forward,
                  .backward = exp_backward,
                  .is_cheap = true};

// ---- log ------------------------------------------------------------------------------------------------------------

namespace {

struct LogOf {
  template <typename T>
  DISTAG_INLINE static T apply(T x) {
    return math::log(x);
  }
};

struct LogGradient {
  template <typename T>
  DISTAG_INLINE static T apply(T g, T x) {
    return g / x;
  }
};

Tensors log_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return {saving_argument<LogOf>("log", inputs[0], saved)};
}

Tensors log_backward(const Saved& saved, Tensors gradients) {
  return scaled<LogGradient>("log", saved, std::move(gradients));
}

}  // namespace

constexpr Op kLog{.name = "log",
                  .signature = "log(tensor x) -> tensor",
                  .summary = "The natural logarithm of each element, in the shape of x.",
                  .forward = log_forward,
                  .backward = log_backward,
                  .is_cheap = true};

// ---- sqrt -----------------------------------------------------------------------------------------------------------

namespace {

struct SqrtOf {
  template <typename T>
  DISTAG_INLINE static T apply(T x) {
    return std::sqrt(x);
  }
};

struct SqrtGradient {
  template <typename T>
  DISTAG_INLINE static T apply(T g, T y) {
    return g / (y + y);
  }
};

Tensors sqrt_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return {saving_result<SqrtOf>("sqrt", inputs[0], saved)};
}

Tensors sqrt_backward(const Saved& saved, Tensors gradients) {
  return scaled<SqrtGradient>("sqrt", saved, std::move(gradients));
}

}  // namespace

constexpr Op kSqrt{.name = "sqrt",
                   .signature = "sqrt(tensor x) -> tensor",
                   .summary = "The square root of each element, in the shape of x.",
                   .forward = sqrt_forward,
                   .backward = sqrt_backward,
                   .is_cheap = true};

// ---- tanh -----------------------------------------------------------------------------------------------------------

namespace {

struct TanhOf {
  template <typename T>
  DISTAG_INLINE static T apply(T x) {
    return math::tanh(x);
  }
};

struct TanhGradient {
  template <typename T>
  DISTAG_INLINE static T apply(T g, T y) {
    return g * (T(1) - y * y);
  }
};

Tensors tanh_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return {saving_result<TanhOf>("tanh", inputs[0], saved)};
}

Tensors tanh_backward(const Saved& saved, Tensors gradients) {
  return scaled<TanhGradient>("tanh", saved, std::move(gradients));
}

}  // namespace

constexpr Op kTanh{.name = "tanh",
                   .signature = "tanh(tensor x) -> tensor",
                   .summary = "The hyperbolic tangent of each element, in the shape of x.",
                   .forward = tanh_forward,
                   .backward = tanh_backward,
                   .is_cheap = true};

// ---- sigmoid --------------------------------------------------------------------------------------------------------

namespace {

struct SigmoidOf {
  template <typename T>
  DISTAG_INLINE static T apply(T x) {
    return math::sigmoid(x);
  }
};

struct SigmoidGradient {
  template <typename T>
  DISTAG_INLINE static T apply(T g, T y) {
    return g * (y * (T(1) - y));
  }
};

Tensors sigmoid_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return {saving_result<SigmoidOf>("sigmoid", inputs[0], saved)};
}

Tensors sigmoid_backward(const Saved& saved, Tensors gradients) {
  return scaled<SigmoidGradient>("sigmoid", saved, std::move(gradients));
}

}  // namespace

constexpr Op kSigmoid{.name = "sigmoid",
                      .signature = "sigmoid(tensor x) -> tensor",
                      .summary = "1 / (1 + exp(-x)) of each element, in the shape of x.",
                      .forward = sigmoid_forward,
                      .backward = sigmoid_backward,
                      .is_cheap = true};

// ---- relu -----------------------------------------------------------------------------------------------------------

namespace {

// NaN stays NaN.
struct ReluOf {
  template <typename T>
  DISTAG_INLINE static T apply(T x) {
    return x < T(0) ? T(0) : x;
  }
};

struct ReluGradient {
  template <typename T>
  DISTAG_INLINE static T apply(T g, T y) {
    return y <= T(0) ? T(0) : g;  // a NaN passes on
  }
};

Tensors relu_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  if (is_floating(inputs[0].dtype())) return {saving_result<ReluOf>("relu", inputs[0], saved)};
  Tensor in = inputs[0].contiguous();
  Tensor out = Tensor::empty(in.dtype(), in.shape());
  dispatch_numeric("relu", in.dtype(), [&]<typename T>(T) { unary_into<ReluOf, T, T>(out, in); });
  return {out};
}

Tensors relu_backward(const Saved& saved, Tensors gradients) {
  return scaled<ReluGradient>("relu", saved, std::move(gradients));
}

}  // namespace

constexpr Op kRelu{.name = "relu",
                   .signature = "relu(tensor x) -> tensor",
                   .summary = "max(x, 0) of each element, in the shape of x; its gradient at 0 is 0.",
                   .forward = relu_forward,
                   .backward = relu_backward,
                   .is_cheap = true,
                   .is_one_pass = true};

}  // namespace distag::ops
