// Elementwise functions of one tensor whose gradient follows from the argument: sin, cos, erf, abs, square, rsqrt,
// reciprocal, clamp, and the activations silu, softplus, gelu, leaky_relu, elu. Also step functions: floor, round,
// sign.
#include <cmath>

#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/finite.h"
#include "ops/gelu.h"
#include "ops/math.h"
#include "ops/require.h"
#include "ops/rows.h"
#include "ops/unary.h"
#include "ops/whole_bounds.h"

namespace distag::ops {

// ---- sin, cos -------------------------------------------------------------------------------------------------------

namespace {

// Whether some angle of a row-major x is too large for the vectorised curve.
bool has_large_angles(const Tensor& x) {
  int64_t found = 0;
  dispatch_floating("angles", x.dtype(), [&]<typename T>(T) {
    const auto count_beyond = [](int64_t& beyond, const auto& row) DISTAG_INLINE_LAMBDA {
      const auto is_beyond = [](auto x_i) DISTAG_INLINE_LAMBDA { return int64_t{math::is_beyond_reduction(x_i)}; };
      beyond = sum_of(each(is_beyond, row));
    };
    for_rows(1, x.count(), count_beyond, OfEach(&found), Rows(x.data_as<T>()));
  });
  return found != 0;
}

// Computes value and slope by a curve, or by Any of the curve if angles are large; small angles give the same bits.
template <Name kName, typename Value, typename Slope>
struct AngleOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved* saved) {
    const Tensor x = floating_row_major(inputs[0]);
    if (saved != nullptr) saved->tensors = {x.snapshot()};
    return has_large_angles(x) ? value_of(kName.text, kValueOf<math::Any<Value>>, x)
                               : value_of(kName.text, kValueOf<Value>, x);
  }
  static Tensor backward(const Saved& saved, const Tensor& g) {
    const Tensor& x = saved.tensors[0];
    return has_large_angles(x) ? gradient_by(kName.text, kGradientOf<math::Any<Slope>>, g, x)
                               : gradient_by(kName.text, kGradientOf<Slope>, g, x);
  }

 private:
  template <typename Curve>
  static constexpr auto kValueOf = [](const auto& x) { return each(Curve(), x); };
  template <typename Curve>
  static constexpr auto kGradientOf = [](const auto& g, const auto& x) { return g * each(Curve(), x); };
};

}  // namespace

constexpr Op kSin = make_op<AngleOp<"sin", math::Sin, math::Cos>>(
    "sin(tensor x) -> tensor", "The sine of each element, in the shape of x.", kCheap);

constexpr Op kCos = make_op<AngleOp<"cos", math::Cos, math::MinusSin>>(
    "cos(tensor x) -> tensor", "The cosine of each element, in the shape of x.", kCheap);

// ---- erf ------------------------------------------------------------------------------------------------------------

constexpr Op kErf = of_argument<"erf", [](const auto& x) { return each(math::Erf(), x); },
                                [](const auto& g, const auto& x) { return g * each(math::ErfSlope(), x); }>(
    "erf(tensor x) -> tensor", "The error function of each element, in the shape of x.");

// ---- abs, square, floor, round, sign: integers stay integers, which wrap around; bools become int64 -----------------

namespace {

// Computes integers as unsigned numbers.
template <typename F>
Tensor whole_value_of(const F& value, const Tensor& input) {
  const Tensor x = (input.dtype() == Dtype::kBool ? as_dtype(input, Dtype::kInt64) : input).contiguous();
  Tensor out = empty_like(x);
  compute<uint64_t, uint64_t>(out, value, x);
  return out;
}

template <Name kName, auto kValue, auto kWhole, auto kGradient>
struct NumbersOp : UnaryOp<kName, Saves::kArgument, kValue, kGradient> {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    if (!is_floating(inputs[0].dtype())) return whole_value_of(kWhole, inputs[0]);
    return UnaryOp<kName, Saves::kArgument, kValue, kGradient>::forward(inputs, attributes, saved);
  }
};

// The gradient is 0, without allocating it.
template <Name kName, auto kValue, auto kWhole>
struct StepOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved*) {
    const Tensor& x = inputs[0];
    return is_floating(x.dtype()) ? value_of(kName.text, kValue, x) : whole_value_of(kWhole, x);
  }
  static Tensor backward(const Saved&, const Tensor& g) {
    return broadcast_to(Tensor::scalar(g.dtype(), 0.0), g.shape());
  }
};

constexpr auto kItself = [](const auto& x) { return x; };

}  // namespace

// -0 gives +0. The slope at 0 is 0.
constexpr Op kAbs =
    make_op<NumbersOp<"abs", [](const auto& x) { return select(x <= 0, Element<decltype(x)>(0) - x, x); },
                      [](const auto& x) { return select(x > uint64_t{INT64_MAX}, uint64_t{0} - x, x); },
                      [](const auto& g, const auto& x) { return g * kSignOf(x); }>>(
        "abs(tensor x) -> tensor", "The absolute value of each element, in the shape of x.", kCheap);

constexpr Op kSquare =
    make_op<NumbersOp<"square", [](const auto& x) { return x * x; }, [](const auto& x) { return x * x; },
                      [](const auto& g, const auto& x) { return g * (x + x); }>>(
        "square(tensor x) -> tensor", "x * x of each element, in the shape of x.", kCheap);

constexpr Op kFloor = make_op<StepOp<"floor", [](const auto& x) { return xt::floor(x); }, kItself>>(
    "floor(tensor x) -> tensor", "The largest whole number up to each element, in the shape of x; its gradient is 0.",
    kCheap);

// A number half way between two whole numbers rounds to the even one.
constexpr Op kRound = make_op<StepOp<"round", [](const auto& x) { return xt::nearbyint(x); }, kItself>>(
    "round(tensor x) -> tensor",
    "The nearest whole number of each element, the even one of two, in the shape of x; its gradient is 0.", kCheap);

constexpr auto kSignOfWhole = [](const auto& x) {
  return select(x > uint64_t{INT64_MAX}, ~uint64_t{0}, select(xt::equal(x, uint64_t{0}), uint64_t{0}, uint64_t{1}));
};
constexpr Op kSign = make_op<StepOp<"sign", kSignOf, kSignOfWhole>>(
    "sign(tensor x) -> tensor", "-1, 0 or 1 as each element is below, at (or NaN) or above 0; its gradient is 0.",
    kCheap);

// ---- rsqrt, reciprocal: slopes use the result, as powers of the argument leave the range earlier --------------------

constexpr auto kRsqrtSlope = []<typename T>(T x) DISTAG_INLINE_LAMBDA {
  const T y = T(1) / std::sqrt(x);
  return (T(-0.5) * y) * (y * y);
};
constexpr auto kReciprocalSlope = []<typename T>(T x) DISTAG_INLINE_LAMBDA {
  const T y = T(1) / x;
  return -(y * y);
};

constexpr Op kRsqrt = of_argument<"rsqrt", [](const auto& x) { return 1 / xt::sqrt(x); },
                                  [](const auto& g, const auto& x) { return g * each(kRsqrtSlope, x); }>(
    "rsqrt(tensor x) -> tensor", "1 / sqrt(x) of each element, in the shape of x.");

constexpr Op kReciprocal = of_argument<"reciprocal", [](const auto& x) { return 1 / x; },
                                       [](const auto& g, const auto& x) { return g * each(kReciprocalSlope, x); }>(
    "reciprocal(tensor x) -> tensor", "1 / x of each element, in the shape of x.");

// ---- silu, softplus, gelu -------------------------------------------------------------------------------------------

constexpr Op kSilu = of_argument<"silu", [](const auto& x) { return each(math::Silu(), x); },
                                 [](const auto& g, const auto& x) { return g * each(math::SiluSlope(), x); }>(
    "silu(tensor x) -> tensor", "x * sigmoid(x) of each element, in the shape of x.");

constexpr Op kSoftplus = of_argument<"softplus", [](const auto& x) { return each(math::Softplus(), x); },
                                     [](const auto& g, const auto& x) { return g * each(math::Sigmoid(), x); }>(
    "softplus(tensor x) -> tensor", "log(1 + exp(x)) of each element, in the shape of x, without overflow.");

// The exact form of gelu.
constexpr Op kGelu = of_argument<"gelu", [](const auto& x) { return each(math::Gelu(), x); },
                                 [](const auto& g, const auto& x) { return g * each(math::GeluSlope(), x); }>(
    "gelu(tensor x) -> tensor", "x * (1 + erf(x / sqrt(2))) / 2 of each element, in the shape of x.");

// ---- leaky_relu, elu, clamp -----------------------------------------------------------------------------------------

namespace {

struct LeakyRelu {
  explicit LeakyRelu(const Attributes& attributes)
      : slope(get_finite("leaky_relu", attributes, "negative_slope", 0.01)) {}
  auto value(const auto& x) const { return select(x > 0, x, x * static_cast<Element<decltype(x)>>(slope)); }
  auto gradient(const auto& g, const auto& x) const {
    using T = Element<decltype(x)>;
    return g * select(x > 0, T(1), static_cast<T>(slope));
  }
  double slope;
};

struct Elu {
  explicit Elu(const Attributes& attributes) : alpha(get_finite("elu", attributes, "alpha", 1.0)) {}
  auto value(const auto& x) const {
    return select(x > 0, x, static_cast<Element<decltype(x)>>(alpha) * each(math::Expm1NotPositive(), x));
  }
  auto gradient(const auto& g, const auto& x) const {
    using T = Element<decltype(x)>;
    const auto slope_below = [factor = static_cast<T>(alpha)](T at)
                                 DISTAG_INLINE_LAMBDA { return math::exp_times(at > T(0) ? T(0) : at, factor); };
    return g * select(x > 0, T(1), each(slope_below, x));
  }
  double alpha;
};

template <typename T>
struct Limited {
  T least, most;
  DISTAG_INLINE T operator()(T number) const {
    const T raised = number < least ? least : number;
    return raised > most ? most : raised;
  }
};

// NaN stays NaN. The slope is 1 at the bounds.
struct Clamp {
  explicit Clamp(const Attributes& attributes)
      : low(get_float(attributes, "min", -HUGE_VAL)), high(get_float(attributes, "max", HUGE_VAL)) {
    require(!std::isnan(low) && !std::isnan(high), "clamp: min {} and max {}: NaN is no bound", low, high);
  }
  auto value(const auto& x) const {
    using T = Element<decltype(x)>;
    return each(Limited<T>{static_cast<T>(low), static_cast<T>(high)}, x);
  }
  auto gradient(const auto& g, const auto& x) const {
    using T = Element<decltype(x)>;
    return g * select((x >= static_cast<T>(low)) & (x <= static_cast<T>(high)), T(1), T(0));
  }
  double low;
  double high;
};

// Integers stay integers; bools become int64.
struct ClampOp : CurveOp<"clamp", Clamp> {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    if (is_floating(inputs[0].dtype())) return CurveOp::forward(inputs, attributes, saved);
    const auto [least, most] = get_whole_bounds("clamp", attributes);
    const auto limited = [limit = Limited<int64_t>{least, most}](const auto& row) { return each(limit, row); };
    Tensor out = Tensor::empty(Dtype::kInt64, inputs[0].shape());
    compute<int64_t, int64_t>(out, limited, as_dtype(inputs[0], Dtype::kInt64));
    return out;
  }
};

}  // namespace

constexpr Op kLeakyRelu =
    of_curve<"leaky_relu", LeakyRelu>("leaky_relu(tensor x, float64 negative_slope = 0.01) -> tensor",
                                      "x where x > 0, else negative_slope * x, in the shape of x.");

constexpr Op kElu = of_curve<"elu", Elu>("elu(tensor x, float64 alpha = 1) -> tensor",
                                         "x where x > 0, else alpha * (exp(x) - 1), in the shape of x.");

constexpr Op kClamp =
    make_op<ClampOp>("clamp(tensor x, float64 min = -inf, float64 max = inf) -> tensor",
                     "Each element limited to min .. max, in the shape of x; for integers these are whole.", kCheap);

}  // namespace distag::ops
