// Elementwise functions of one tensor, each with its slope: sin, cos, abs, square, rsqrt, reciprocal, clamp, and the
// activations silu, softplus, gelu, leaky_relu, elu. The gradient is that of the result times the slope at x.
#include <cmath>

#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/elementwise.h"
#include "ops/math.h"

namespace distag::ops {
namespace {

template <typename Curve, typename T>
struct ValueRow {
  DISTAG_INLINE static void run(T* out, const T* x, Curve curve, int64_t count) {
    DISTAG_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) out[i] = curve.value(x[i]);
  }
};

template <typename Curve, typename T>
struct SlopeRow {
  DISTAG_INLINE static void run(T* out, const T* g, const T* x, Curve curve, int64_t count) {
    DISTAG_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) out[i] = g[i] * curve.slope(x[i]);
  }
};

// Integers and bools become float32.
template <typename Curve>
Tensors values_of(const char* op, Curve curve, const Tensor& input, Saved* saved) {
  Tensor x = (is_floating(input.dtype()) ? input : as_dtype(input, Dtype::kFloat32)).contiguous();
  Tensor out = Tensor::empty(x.dtype(), x.shape());
  dispatch_floating(op, x.dtype(), [&]<typename T>(T) {
    if (x.count() == 0) return;
    simd::run<ValueRow<Curve, T>, T*, const T*, Curve, int64_t>(out.mutable_data_as<T>(), x.data_as<T>(), curve,
                                                                x.count());
  });
  if (saved != nullptr) saved->tensors = {x.snapshot()};
  return {out};
}

// The same where integers stay integers, which wrap around; bools become int64.
template <typename Curve>
Tensors numeric_values_of(const char* op, Curve curve, const Tensor& input, Saved* saved) {
  if (is_floating(input.dtype())) return values_of(op, curve, input, saved);
  const Tensor x = as_dtype(input, Dtype::kInt64).contiguous();
  Tensor out = Tensor::empty(x.dtype(), x.shape());
  if (x.count() == 0) return {out};
  const auto* from = x.data_as<int64_t>();
  auto* to = out.mutable_data_as<int64_t>();
  for (int64_t i = 0; i < x.count(); ++i)
    to[i] = static_cast<int64_t>(curve.whole(from[i], static_cast<uint64_t>(from[i])));
  return {out};
}

template <typename Curve>
Tensors slopes_of(const char* op, Curve curve, const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  const Tensor& x = saved.tensors[0];
  Tensor g = std::move(gradients[0]);
  if (!g.is_contiguous()) g = g.clone();
  Tensor out = output_for(g, x.dtype(), x.shape());
  dispatch_floating(op, x.dtype(), [&]<typename T>(T) {
    if (x.count() == 0) return;
    const T* in = g.data_as<T>();
    simd::run<SlopeRow<Curve, T>, T*, const T*, const T*, Curve, int64_t>(out.mutable_data_as<T>(), in, x.data_as<T>(),
                                                                          curve, x.count());
  });
  return {out};
}

// ---- sin ------------------------------------------------------------------------------------------------------------

struct Sine {
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return std::sin(x);
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return std::cos(x);
  }
};

Tensors sin_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return values_of("sin", Sine(), inputs[0], saved);
}

Tensors sin_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("sin", Sine(), saved, std::move(gradients));
}

}  // namespace

constexpr Op kSin{.name = "sin",
                  .signature = "sin(tensor x) -> tensor",
                  .summary = "The sine of each element, in the shape of x.",
                  .forward = sin_forward,
                  .backward = sin_backward,
                  .is_cheap = true};

// ---- cos ------------------------------------------------------------------------------------------------------------

namespace {

struct CosCurve {
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return std::cos(x);
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return -std::sin(x);
  }
};

Tensors cos_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return values_of("cos", CosCurve(), inputs[0], saved);
}

Tensors cos_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("cos", CosCurve(), saved, std::move(gradients));
}

}  // namespace

constexpr Op kCos{.name = "cos",
                  .signature = "cos(tensor x) -> tensor",
                  .summary = "The cosine of each element, in the shape of x.",
                  .forward = cos_forward,
                  .backward = cos_backward,
                  .is_cheap = true};

// ---- abs ------------------------------------------------------------------------------------------------------------

namespace {

// Of -0 it is +0. The slope at 0 is 0.
struct AbsCurve {
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return x <= T(0) ? T(0) - x : x;
  }
  uint64_t whole(int64_t x, uint64_t bits) const { return x < 0 ? 0 - bits : bits; }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0);
  }
};

Tensors abs_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return numeric_values_of("abs", AbsCurve(), inputs[0], saved);
}

Tensors abs_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("abs", AbsCurve(), saved, std::move(gradients));
}

}  // namespace

constexpr Op kAbs{.name = "abs",
                  .signature = "abs(tensor x) -> tensor",
                  .summary = "The absolute value of each element, in the shape of x.",
                  .forward = abs_forward,
                  .backward = abs_backward,
                  .is_cheap = true};

// ---- square ---------------------------------------------------------------------------------------------------------

namespace {

struct SquareCurve {
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return x * x;
  }
  uint64_t whole(int64_t, uint64_t bits) const { return bits * bits; }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return x + x;
  }
};

Tensors square_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return numeric_values_of("square", SquareCurve(), inputs[0], saved);
}

Tensors square_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("square", SquareCurve(), saved, std::move(gradients));
}

}  // namespace

constexpr Op kSquare{.name = "square",
                     .signature = "square(tensor x) -> tensor",
                     .summary = "x * x of each element, in the shape of x.",
                     .forward = square_forward,
                     .backward = square_backward,
                     .is_cheap = true};

// ---- rsqrt ----------------------------------------------------------------------------------------------------------

namespace {

// 1 / sqrt(x)
struct RsqrtCurve {
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return T(1) / std::sqrt(x);
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return T(-0.5) / (x * std::sqrt(x));
  }
};

Tensors rsqrt_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return values_of("rsqrt", RsqrtCurve(), inputs[0], saved);
}

Tensors rsqrt_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("rsqrt", RsqrtCurve(), saved, std::move(gradients));
}

}  // namespace

constexpr Op kRsqrt{.name = "rsqrt",
                    .signature = "rsqrt(tensor x) -> tensor",
                    .summary = "1 / sqrt(x) of each element, in the shape of x.",
                    .forward = rsqrt_forward,
                    .backward = rsqrt_backward,
                    .is_cheap = true};

// ---- reciprocal -----------------------------------------------------------------------------------------------------

namespace {

struct ReciprocalCurve {
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return T(1) / x;
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return T(-1) / (x * x);
  }
};

Tensors reciprocal_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return values_of("reciprocal", ReciprocalCurve(), inputs[0], saved);
}

Tensors reciprocal_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("reciprocal", ReciprocalCurve(), saved, std::move(gradients));
}

}  // namespace

constexpr Op kReciprocal{.name = "reciprocal",
                         .signature = "reciprocal(tensor x) -> tensor",
                         .summary = "1 / x of each element, in the shape of x.",
                         .forward = reciprocal_forward,
                         .backward = reciprocal_backward,
                         .is_cheap = true};

// ---- silu -----------------------------------------------------------------------------------------------------------

namespace {

// x sigmoid(x)
struct SiluCurve {
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return x * math::sigmoid(x);
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    T s = math::sigmoid(x);
    return s * (T(1) + x * (T(1) - s));
  }
};

Tensors silu_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return values_of("silu", SiluCurve(), inputs[0], saved);
}

Tensors silu_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("silu", SiluCurve(), saved, std::move(gradients));
}

}  // namespace

constexpr Op kSilu{.name = "silu",
                   .signature = "silu(tensor x) -> tensor",
                   .summary = "x * sigmoid(x) of each element, in the shape of x.",
                   .forward = silu_forward,
                   .backward = silu_backward,
                   .is_cheap = true};

// ---- softplus -------------------------------------------------------------------------------------------------------

namespace {

// log(1 + exp(x)), without overflow.
struct SoftplusCurve {
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return std::log1p(math::exp(-std::fabs(x))) + (x > T(0) ? x : T(0));
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return math::sigmoid(x);
  }
};

Tensors softplus_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return values_of("softplus", SoftplusCurve(), inputs[0], saved);
}

Tensors softplus_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("softplus", SoftplusCurve(), saved, std::move(gradients));
}

}  // namespace

constexpr Op kSoftplus{.name = "softplus",
                       .signature = "softplus(tensor x) -> tensor",
                       .summary = "log(1 + exp(x)) of each element, in the shape of x, without overflow.",
                       .forward = softplus_forward,
                       .backward = softplus_backward,
                       .is_cheap = true};

// ---- gelu -----------------------------------------------------------------------------------------------------------

namespace {

// x times the normal distribution's share below x (Hendrycks, Gimpel 2016), in its exact form.
struct GeluCurve {
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return x * T(0.5) * (T(1) + std::erf(x * T(0.70710678118654752440)));
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    T below = T(0.5) * (T(1) + std::erf(x * T(0.70710678118654752440)));
    return below + x * T(0.39894228040143267794) * math::exp(x * x * T(-0.5));
  }
};

Tensors gelu_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  return values_of("gelu", GeluCurve(), inputs[0], saved);
}

Tensors gelu_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("gelu", GeluCurve(), saved, std::move(gradients));
}

}  // namespace

constexpr Op kGelu{.name = "gelu",
                   .signature = "gelu(tensor x) -> tensor",
                   .summary = "x * (1 + erf(x / sqrt(2))) / 2 of each element, in the shape of x.",
                   .forward = gelu_forward,
                   .backward = gelu_backward,
                   .is_cheap = true};

// ---- leaky_relu -----------------------------------------------------------------------------------------------------

namespace {

struct LeakyReluCurve {
  double negative_slope;
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return x > T(0) ? x : x * static_cast<T>(negative_slope);
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return x > T(0) ? T(1) : static_cast<T>(negative_slope);
  }
};

LeakyReluCurve leaky_relu_curve(const Attributes& attributes) {
  return {get_float(attributes, "negative_slope", 0.01)};
}

Tensors leaky_relu_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  if (saved != nullptr) saved->attributes = attributes;
  return values_of("leaky_relu", leaky_relu_curve(attributes), inputs[0], saved);
}

Tensors leaky_relu_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("leaky_relu", leaky_relu_curve(saved.attributes), saved, std::move(gradients));
}

}  // namespace

constexpr Op kLeakyRelu{.name = "leaky_relu",
                        .signature = "leaky_relu(tensor x, float64 negative_slope = 0.01) -> tensor",
                        .summary = "x where x > 0, else negative_slope * x, in the shape of x.",
                        .forward = leaky_relu_forward,
                        .backward = leaky_relu_backward,
                        .is_cheap = true};

// ---- elu ------------------------------------------------------------------------------------------------------------

namespace {

struct EluCurve {
  double alpha;
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    return x > T(0) ? x : static_cast<T>(alpha) * std::expm1(x);
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return x > T(0) ? T(1) : static_cast<T>(alpha) * math::exp(x);
  }
};

EluCurve elu_curve(const Attributes& attributes) { return {get_float(attributes, "alpha", 1.0)}; }

Tensors elu_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  if (saved != nullptr) saved->attributes = attributes;
  return values_of("elu", elu_curve(attributes), inputs[0], saved);
}

Tensors elu_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("elu", elu_curve(saved.attributes), saved, std::move(gradients));
}

}  // namespace

constexpr Op kElu{.name = "elu",
                  .signature = "elu(tensor x, float64 alpha = 1) -> tensor",
                  .summary = "x where x > 0, else alpha * (exp(x) - 1), in the shape of x.",
                  .forward = elu_forward,
                  .backward = elu_backward,
                  .is_cheap = true};

// ---- clamp ----------------------------------------------------------------------------------------------------------

namespace {

// NaN stays NaN. The slope is 1 at the bounds.
struct ClampCurve {
  double low;
  double high;
  template <typename T>
  DISTAG_INLINE T value(T x) const {
    T least = static_cast<T>(low);
    T most = static_cast<T>(high);
    T raised = x < least ? least : x;
    return raised > most ? most : raised;
  }
  template <typename T>
  DISTAG_INLINE T slope(T x) const {
    return x >= static_cast<T>(low) && x <= static_cast<T>(high) ? T(1) : T(0);
  }
};

ClampCurve clamp_curve(const Attributes& attributes) {
  const ClampCurve curve{get_float(attributes, "min", -HUGE_VAL), get_float(attributes, "max", HUGE_VAL)};
  if (std::isnan(curve.low) || std::isnan(curve.high)) {
    fail(Status::kInvalidArgument, "clamp: min {} and max {}: NaN is no bound", curve.low, curve.high);
  }
  return curve;
}

Tensors clamp_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  if (saved != nullptr) saved->attributes = attributes;
  return values_of("clamp", clamp_curve(attributes), inputs[0], saved);
}

Tensors clamp_backward(const Saved& saved, Tensors gradients) {
  return slopes_of("clamp", clamp_curve(saved.attributes), saved, std::move(gradients));
}

}  // namespace

constexpr Op kClamp{.name = "clamp",
                    .signature = "clamp(tensor x, float64 min = -inf, float64 max = inf) -> tensor",
                    .summary = "Each element limited to min .. max, in the shape of x.",
                    .forward = clamp_forward,
                    .backward = clamp_backward,
                    .is_cheap = true};

}  // namespace distag::ops
