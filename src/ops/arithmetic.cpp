// Elementwise ops of two tensors, and of a tensor and a number.
#include <cmath>
#include <utility>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/elementwise.h"

namespace distag::ops {
namespace {

// f(a, b) of all dtypes, in the shape to which both broadcast.
template <typename F>
Tensor binary(F f, const Pair& pair) {
  Tensor out = Tensor::empty(pair.dtype(), pair.shape);
  dispatch(pair.dtype(), [&]<typename T>(T) { compute_alike<Wrapping<T>>(out, f, pair.a, pair.b); });
  return out;
}

constexpr auto kNegationOf = [](const auto& x) {
  if constexpr (std::is_floating_point_v<Element<decltype(x)>>)
    return -x;
  else
    return uint64_t{0} - x;
};

void negate_into(const char* op, Tensor& out, const Tensor& x) {
  dispatch_numeric(op, x.dtype(), [&]<typename T>(T) { compute_alike<Wrapping<T>>(out, kNegationOf, x); });
}

// In place of a gradient that is exclusive.
Tensor negated(const char* op, const Tensor& x) {
  Tensor out = output_for(x, x.dtype(), x.shape());
  negate_into(op, out, x);
  return out;
}

// ---- add ------------------------------------------------------------------------------------------------------------

Tensors add_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  save_kinds(saved, inputs);
  return {binary(kSumOf, Pair("add", inputs))};
}

Tensors add_backward(const Saved& saved, Tensors gradients) {
  Tensors result(2);
  if (!gradients[0]) return result;
  for (size_t i = 0; i < 2; ++i) {
    if (saved.needs(i)) result[i] = gradient_of(saved, i, gradients[0]);
  }
  return result;
}

}  // namespace

constexpr Op kAdd{.name = "add",
                  .signature = "add(tensor a, tensor b) -> tensor",
                  .summary = "a + b, elementwise, shapes broadcast.",
                  .forward = add_forward,
                  .backward = add_backward,
                  .is_cheap = true,
                  .is_one_pass = true};

// ---- sub ------------------------------------------------------------------------------------------------------------

namespace {

Tensors sub_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  Pair pair("sub", inputs);
  Tensor out = Tensor::empty(pair.dtype(), pair.shape);
  dispatch_numeric("sub", pair.dtype(),
                   [&]<typename T>(T) { compute_alike<Wrapping<T>>(out, kDifferenceOf, pair.a, pair.b); });
  save_kinds(saved, inputs);
  return {out};
}

Tensors sub_backward(const Saved& saved, Tensors gradients) {
  Tensors result(2);
  Tensor& g = gradients[0];
  if (!g) return result;
  if (saved.needs(0)) result[0] = gradient_of(saved, 0, g);
  if (saved.needs(1)) {
    // Summed first: there is less to negate.
    Tensor summed = gradient_of(saved, 1, std::move(g));
    result[1] = negated("sub", summed);
  }
  return result;
}

}  // namespace

constexpr Op kSub{.name = "sub",
                  .signature = "sub(tensor a, tensor b) -> tensor",
                  .summary = "a - b, elementwise, shapes broadcast.",
                  .forward = sub_forward,
                  .backward = sub_backward,
                  .is_cheap = true,
                  .is_one_pass = true};

// ---- mul ------------------------------------------------------------------------------------------------------------

namespace {

// Whether both gradients go to one tensor: then their sum is given as that of input 0. A part of a sharded tensor has
// no history, and tensors that share it have gradients of their own.
bool is_square(std::span<const Tensor> inputs, const Saved& saved) {
  return inputs[0].id() == inputs[1].id() && inputs[0].grad_slot() != nullptr && saved.needs(0) && saved.needs(1);
}

Tensors mul_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  Pair pair("mul", inputs);
  if (saved != nullptr) {
    save_kinds(saved, inputs);
    saved->tensors.reserve(2);
    saved->tensors.push_back(saved->needs(1) ? pair.a.snapshot() : Tensor());
    if (!is_square(inputs, *saved)) saved->tensors.push_back(saved->needs(0) ? pair.b.snapshot() : Tensor());
  }
  return {binary(kProductOf, pair)};
}

// sum + g * x, of row-major tensors of one shape and floating dtype; in place of one of the first two where that is
// exclusive, also where both are one tensor. The product is rounded before it is added, as in two passes.
Tensor add_product(const Tensor& sum, Tensor g, const Tensor& x) {
  if (sum.id() == g.id()) g = Tensor();
  const Tensor& factor = g ? std::as_const(g) : sum;
  Tensor out = output_for(sum.is_exclusive() ? sum : factor, x.dtype(), x.shape());
  const auto onto = [](const auto& so_far, const auto& a, const auto& b) { return so_far + a * b; };
  dispatch_floating("mul", x.dtype(), [&]<typename T>(T) { compute_alike<T>(out, onto, sum, factor, x); });
  return out;
}

// The gradient of one input, onto what it has so far.
Tensor mul_gradient(const Saved& saved, size_t input, Tensor sum, Tensor g) {
  const Tensor& x = saved.tensors[1 - input];
  const auto fits = [&saved, &x, input](const Tensor& t) {
    return t && t.is_contiguous() && t.dtype() == x.dtype() && t.shape() == saved.shapes[input];
  };
  if (fits(sum) && fits(g) && fits(x)) return add_product(sum, std::move(g), x);
  return accumulate(std::move(sum), gradient_of(saved, input, combine("mul", kProductOf, g, x)));
}

// The two products of a gradient with one number, added.
constexpr auto kTwiceProductOf = [](const auto& a, const auto& b) { return a * b + a * b; };

Tensors mul_backward_onto(const Saved& saved, Tensors gradients, Tensors sums) {
  Tensor g = std::move(gradients[0]);
  if (!g) return sums;
  if (saved.tensors.size() == 1) {
    sums[0] = accumulate(std::move(sums[0]), combine("mul", kTwiceProductOf, g, saved.tensors[0]));
    return sums;
  }
  // Into new memory if the gradient is needed once more.
  if (saved.needs(1)) sums[1] = mul_gradient(saved, 1, std::move(sums[1]), saved.needs(0) ? g : std::move(g));
  if (saved.needs(0)) sums[0] = mul_gradient(saved, 0, std::move(sums[0]), std::move(g));
  return sums;
}

Tensors mul_backward(const Saved& saved, Tensors gradients) {
  return mul_backward_onto(saved, std::move(gradients), Tensors(2));
}

}  // namespace

constexpr Op kMul{.name = "mul",
                  .signature = "mul(tensor a, tensor b) -> tensor",
                  .summary = "a * b, elementwise, shapes broadcast.",
                  .forward = mul_forward,
                  .backward = mul_backward,
                  .backward_onto = mul_backward_onto,
                  .is_cheap = true,
                  .is_one_pass = true};

// ---- div ------------------------------------------------------------------------------------------------------------

namespace {

Tensors div_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  Dtype dtype = result_dtype(inputs[0], inputs[1]);
  Pair pair("div", inputs, is_floating(dtype) ? dtype : Dtype::kFloat32);
  Tensor out = Tensor::empty(pair.dtype(), pair.shape);
  dispatch_floating("div", pair.dtype(), [&]<typename T>(T) { compute_alike<T>(out, kQuotientOf, pair.a, pair.b); });
  if (saved != nullptr) {
    save_kinds(saved, inputs);
    saved->tensors = {pair.b.snapshot(), saved->needs(1) ? out.snapshot() : Tensor()};
  }
  return {out};
}

// g * (y / b): g / b may be infinite where y / b is 0.
constexpr auto kProductOfRatio = [](const auto& g, const auto& y, const auto& b) { return g * (y / b); };

// d(a / b) = da / b - (a / b) / b db
Tensors div_backward(const Saved& saved, Tensors gradients) {
  Tensors result(2);
  if (!gradients[0]) return result;
  Tensor g = std::move(gradients[0]);
  if (saved.needs(1)) {
    // Into new memory if the gradient is needed once more.
    const Tensor kept = saved.needs(0) ? g : Tensor();
    Tensor summed = gradient_of(saved, 1, combine("div", kProductOfRatio, g, saved.tensors[1], saved.tensors[0]));
    result[1] = negated("div", summed);
  }
  if (saved.needs(0)) result[0] = gradient_of(saved, 0, combine("div", kQuotientOf, g, saved.tensors[0]));
  return result;
}

}  // namespace

constexpr Op kDiv{.name = "div",
                  .signature = "div(tensor a, tensor b) -> tensor",
                  .summary = "a / b, elementwise, shapes broadcast; integers give floats.",
                  .forward = div_forward,
                  .backward = div_backward,
                  .is_cheap = true};

// ---- add_scalar, mul_scalar -----------------------------------------------------------------------------------------

namespace {

template <typename F>
Tensor with_number(const char* op, F f, const Tensor& x, const Attributes& attributes) {
  double value = get_float(attributes, "value", 0.0);
  check_fits(op, x.dtype(), value);
  Tensor out = Tensor::empty(x.dtype(), x.shape());
  dispatch_numeric(op, x.dtype(), [&]<typename T>(T) {
    const auto number = static_cast<Wrapping<T>>(static_cast<T>(value));
    compute_alike<Wrapping<T>>(
        out, [f, number](const auto& row) { return f(row, number); }, x);
  });
  return out;
}

constexpr auto kPlusNumber = [](const auto& x, const auto& number) { return x + number; };
constexpr auto kTimesNumber = [](const auto& x, const auto& number) { return x * number; };

Tensors add_scalar_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved*) {
  return {with_number("add_scalar", kPlusNumber, inputs[0], attributes)};
}

Tensors add_scalar_backward(const Saved&, Tensors gradients) { return gradients; }

}  // namespace

constexpr Op kAddScalar{.name = "add_scalar",
                        .signature = "add_scalar(tensor x, float64 value) -> tensor",
                        .summary = "x + value, in the shape and dtype of x.",
                        .forward = add_scalar_forward,
                        .backward = add_scalar_backward,
                        .is_cheap = true,
                        .is_one_pass = true};

namespace {

Tensors mul_scalar_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  if (saved != nullptr) saved->attributes = attributes;
  return {with_number("mul_scalar", kTimesNumber, inputs[0], attributes)};
}

Tensors mul_scalar_backward(const Saved& saved, Tensors gradients) {
  Tensor& g = gradients[0];
  if (!g) return gradients;
  const double value = get_float(saved.attributes, "value", 0.0);
  Tensor out = output_for(g, g.dtype(), g.shape());
  dispatch_floating("mul_scalar", g.dtype(), [&]<typename T>(T) {
    compute_alike<T>(
        out, [number = static_cast<T>(value)](const auto& row) { return row * number; }, g);
  });
  return {out};
}

}  // namespace

constexpr Op kMulScalar{.name = "mul_scalar",
                        .signature = "mul_scalar(tensor x, float64 value) -> tensor",
                        .summary = "x * value, in the shape and dtype of x.",
                        .forward = mul_scalar_forward,
                        .backward = mul_scalar_backward,
                        .is_cheap = true,
                        .is_one_pass = true};

// ---- neg ------------------------------------------------------------------------------------------------------------

namespace {

Tensors neg_forward(std::span<const Tensor> inputs, const Attributes&, Saved*) {
  Tensor out = Tensor::empty(inputs[0].dtype(), inputs[0].shape());
  negate_into("neg", out, inputs[0]);
  return {out};
}

Tensors neg_backward(const Saved&, Tensors gradients) {
  if (gradients[0]) gradients[0] = negated("neg", gradients[0]);
  return gradients;
}

}  // namespace

constexpr Op kNeg{.name = "neg",
                  .signature = "neg(tensor x) -> tensor",
                  .summary = "-x, in the shape of x.",
                  .forward = neg_forward,
                  .backward = neg_backward,
                  .is_cheap = true,
                  .is_one_pass = true};

// ---- pow ------------------------------------------------------------------------------------------------------------

namespace {

// Of integers by squaring, which wraps around; a negative exponent leaves 1 or -1 of these, 0 of any other base.
struct PowOf {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, int64_t>) {
      if (b < 0 && a != 1 && a != -1) return 0;
      uint64_t power = 1;
      auto base = static_cast<uint64_t>(a);
      for (auto rest = static_cast<uint64_t>(b); rest != 0; rest >>= 1, base *= base)
        power *= (rest & 1) != 0 ? base : 1;
      return static_cast<T>(power);
    } else {
      return std::pow(a, b);
    }
  }
};

constexpr auto kPowerOf = [](const auto& a, const auto& b) { return each(PowOf(), a, b); };
// b a^(b - 1); 0 for b = 0, whatever a is.
constexpr auto kPowerSlopeInBase = [](const auto& a, const auto& b) {
  return select(xt::equal(b, 0), Element<decltype(a)>(0), b * each(PowOf(), a, b - 1));
};
// a^b log(a); 0 for a = 0 where the power stays finite.
constexpr auto kPowerSlopeInExponent = [](const auto& a, const auto& b) {
  return select(xt::equal(a, 0) & (b >= 0), Element<decltype(a)>(0), each(PowOf(), a, b) * xt::log(a));
};

// Integers stay int64, bools become it.
Tensors pow_forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
  Dtype dtype = result_dtype(inputs[0], inputs[1]);
  Pair pair("pow", inputs, is_floating(dtype) ? dtype : Dtype::kInt64);
  Tensor out = Tensor::empty(pair.dtype(), pair.shape);
  dispatch_numeric("pow", pair.dtype(), [&]<typename T>(T) { compute_alike<T>(out, kPowerOf, pair.a, pair.b); });
  if (saved != nullptr) {
    save_kinds(saved, inputs);
    saved->tensors = {pair.a.snapshot(), pair.b.snapshot()};
  }
  return {out};
}

Tensors pow_backward(const Saved& saved, Tensors gradients) {
  Tensors result(2);
  const Tensor& g = gradients[0];
  if (!g) return result;
  for (size_t i = 0; i < 2; ++i) {
    if (!saved.needs(i)) continue;
    Tensor slope = Tensor::empty(g.dtype(), g.shape());
    dispatch_floating("pow", g.dtype(), [&]<typename T>(T) {
      if (i == 0) {
        compute_alike<T>(slope, kPowerSlopeInBase, saved.tensors[0], saved.tensors[1]);
      } else {
        compute_alike<T>(slope, kPowerSlopeInExponent, saved.tensors[0], saved.tensors[1]);
      }
    });
    result[i] = gradient_of(saved, i, combine("pow", kProductOf, slope, g));
  }
  return result;
}

}  // namespace

constexpr Op kPow{.name = "pow",
                  .signature = "pow(tensor a, tensor b) -> tensor",
                  .summary = "a to the power of b, elementwise, shapes broadcast; integers give int64.",
                  .forward = pow_forward,
                  .backward = pow_backward,
                  .is_cheap = true};

}  // namespace distag::ops
