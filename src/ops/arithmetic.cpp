// Elementwise ops of two tensors, or of a tensor and a number.
#include <cmath>
#include <limits>
#include <utility>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/math.h"

namespace distag::ops {

constexpr Op kAdd = of_pair<"add", Takes::kEach, kSumOf, Passed, Passed>(
    "add(tensor a, tensor b) -> tensor", "a + b, elementwise, shapes broadcast.", kOnePass);

constexpr Op kSub = of_pair<"sub", Takes::kNumbers, kDifferenceOf, Passed, Minus<Passed>>(
    "sub(tensor a, tensor b) -> tensor", "a - b, elementwise, shapes broadcast.", kOnePass);

// ---- mul ------------------------------------------------------------------------------------------------------------

struct MulOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor y = Product::forward(inputs, attributes, saved);
    if (saved != nullptr && is_square(inputs, *saved)) saved->tensors.pop_back();
    return y;
  }
  static Tensors backward(const Saved& saved, Tensors gradients) {
    return backward_onto(saved, std::move(gradients), Tensors(2));
  }
  static Tensors backward_onto(const Saved& saved, Tensors gradients, Tensors sums) {
    Tensor g = std::move(gradients[0]);
    if (!g) return sums;
    if (saved.tensors.size() == 1) {
      constexpr auto kTwice = [](const auto& a, const auto& b) { return a * b + a * b; };
      sums[0] = accumulate(std::move(sums[0]), combine("mul", kTwice, g, saved.tensors[0]));
      return sums;
    }
    // The result goes into new memory if the gradient is needed once more.
    if (saved.needs(1)) sums[1] = gradient(saved, 1, std::move(sums[1]), saved.needs(0) ? g : std::move(g));
    if (saved.needs(0)) sums[0] = gradient(saved, 0, std::move(sums[0]), std::move(g));
    return sums;
  }

 private:
  using Product = PairOp<"mul", Takes::kEach, kProductOf, Slope<kProductOf, kB>, Slope<kProductOf, kA>>;

  // Whether both gradients belong to one tensor: then their sum is returned as that of input 0. A part of a sharded
  // tensor has no history, and tensors that share it have separate gradients.
  static bool is_square(Inputs inputs, const Saved& saved) {
    return inputs[0].id() == inputs[1].id() && inputs[0].grad_slot() != nullptr && saved.needs(0) && saved.needs(1);
  }

  // The gradient of one input, added to its gradient so far.
  static Tensor gradient(const Saved& saved, size_t input, Tensor sum, Tensor g) {
    const Tensor& x = saved.tensors[1 - input];
    const auto fits = [&saved, &x, input](const Tensor& t) {
      return t && t.is_contiguous() && t.dtype() == x.dtype() && t.shape() == saved.shapes[input];
    };
    if (fits(sum) && fits(g) && fits(x)) return add_product(sum, std::move(g), x);
    return accumulate(std::move(sum), gradient_of(saved, input, combine("mul", kProductOf, g, x)));
  }

  // sum + g * x, for row-major tensors of one shape and floating dtype; in place of `sum` or `g` if that is exclusive,
  // also if both are one tensor. The product is rounded before it is added, as in two passes.
  static Tensor add_product(const Tensor& sum, Tensor g, const Tensor& x) {
    if (sum.id() == g.id()) g = Tensor();
    const Tensor& factor = g ? std::as_const(g) : sum;
    const auto onto = [](const auto& so_far, const auto& a, const auto& b) { return so_far + a * b; };
    return computed("mul", output_for(sum.is_exclusive() ? sum : factor, x.dtype(), x.shape()), onto, sum, factor, x);
  }
};
constexpr Op kMul =
    make_op<MulOp>("mul(tensor a, tensor b) -> tensor", "a * b, elementwise, shapes broadcast.", kCheap | kOnePass);

// ---- div, pow -------------------------------------------------------------------------------------------------------

// g * (y / b), because g / b may be infinite where y / b is 0.
constexpr auto kProductOfRatio = [](const auto& g, const auto& y, const auto& b) { return g * (y / b); };

// Integer powers by squaring, which wraps around. A negative exponent gives 1 or -1 for these bases, and 0 for any
// other.
constexpr auto kPower = []<typename T>(T a, T b) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    if (b > uint64_t{INT64_MAX} && a != 1 && ~a != 0) return T(0);
    T power = 1;
    for (; b != 0; b >>= 1, a *= a) power *= (b & 1) != 0 ? a : 1;
    return power;
  } else {
    return std::pow(a, b);
  }
};

constexpr auto kPowerOf = [](const auto& a, const auto& b) { return each(kPower, a, b); };
// factor a^b. If the power has lost digits or is too large, two square roots of it are multiplied instead, as the
// product may be in range. NaN stays NaN.
constexpr auto kScaledPower = []<typename T>(T factor, T a, T b) DISTAG_INLINE_LAMBDA {
  const T power = std::pow(a, b);
  const T magnitude = std::fabs(power);
  if (power != power) return power;
  if (magnitude >= std::numeric_limits<T>::min() && magnitude <= std::numeric_limits<T>::max()) return factor * power;
  const T half = std::pow(std::fabs(a), T(0.5) * b);
  return std::copysign(half, power) * factor * half;
};
// b a^(b - 1); 0 for b = 0 and any a. Digits that b - 1 cannot hold become a factor, as long as it is small.
constexpr auto kSlopeInBaseAt = []<typename T>(T a, T b) DISTAG_INLINE_LAMBDA {
  if (b == T(0)) return T(0);
  const T exponent = b - T(1);
  const T back = exponent - b;
  const T rest = (b - (exponent - back)) - (T(1) + back);
  T factor = b;
  if (rest != T(0)) {
    const T share = rest * math::log(std::fabs(a));
    if (std::fabs(share) < T(0.5)) factor += b * share;  // false for NaN
  }
  return kScaledPower(factor, a, exponent);
};
// a^b log(a); 0 for a = 0 if the power stays finite.
constexpr auto kSlopeInExponentAt = []<typename T>(T a, T b) DISTAG_INLINE_LAMBDA {
  return a == T(0) && b >= T(0) ? T(0) : kScaledPower(math::log(a), a, b);
};
constexpr auto kSlopeInBase = [](const auto& a, const auto& b) { return each(kSlopeInBaseAt, a, b); };
constexpr auto kSlopeInExponent = [](const auto& a, const auto& b) { return each(kSlopeInExponentAt, a, b); };

// d(a / b) = da / b - (a / b) / b db
constexpr Op kDiv =
    of_pair<"div", Takes::kAsFloats, kQuotientOf, Slope<kQuotientOf, kB>, Minus<Slope<kProductOfRatio, kY, kB>>>(
        "div(tensor a, tensor b) -> tensor", "a / b, elementwise, shapes broadcast; integers give floats.");

constexpr Op kPow =
    of_pair<"pow", Takes::kAsNumbers, kPowerOf, Share<kSlopeInBase, kA, kB>, Share<kSlopeInExponent, kA, kB>>(
        "pow(tensor a, tensor b) -> tensor",
        "a to the power of b, elementwise, shapes broadcast; integers give int64.");

// ---- add_scalar, mul_scalar, neg ------------------------------------------------------------------------------------

namespace {

// Writes f(x, the attribute value) into `out`, which may be x.
template <typename F>
Tensor with_number(const char* op, F f, Tensor out, const Tensor& x, const Attributes& attributes) {
  const double value = get_float(attributes, "value", 0.0);
  check_fits(op, x.dtype(), value);
  dispatch_numeric(op, x.dtype(), [&]<typename T>(T) {
    const auto number = static_cast<Wrapping<T>>(static_cast<T>(value));
    compute_alike<Wrapping<T>>(
        out, [f, number](const auto& row) { return f(row, number); }, x);
  });
  return out;
}

}  // namespace

struct AddScalarOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved*) {
    return with_number("add_scalar", kSumOf, empty_like(inputs[0]), inputs[0], attributes);
  }
  static Tensor backward(const Saved&, Tensor g) { return g; }
};
constexpr Op kAddScalar = make_op<AddScalarOp>("add_scalar(tensor x, float64 value) -> tensor",
                                               "x + value, in the shape and dtype of x.", kCheap | kOnePass);

struct MulScalarOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    if (saved != nullptr) saved->attributes = attributes;
    return with_number("mul_scalar", kProductOf, empty_like(inputs[0]), inputs[0], attributes);
  }
  static Tensor backward(const Saved& saved, const Tensor& g) {
    return with_number("mul_scalar", kProductOf, output_for(g), g, saved.attributes);
  }
};
constexpr Op kMulScalar = make_op<MulScalarOp>("mul_scalar(tensor x, float64 value) -> tensor",
                                               "x * value, in the shape and dtype of x.", kCheap | kOnePass);

struct NegOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved*) {
    return negated("neg", empty_like(inputs[0]), inputs[0]);
  }
  static Tensor backward(const Saved&, const Tensor& g) { return negated("neg", output_for(g), g); }
};
constexpr Op kNeg = make_op<NegOp>("neg(tensor x) -> tensor", "-x, in the shape of x.", kCheap | kOnePass);

}  // namespace distag::ops
