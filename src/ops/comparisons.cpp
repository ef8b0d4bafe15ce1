// Ops that compare elements or combine truth values, and those that choose by one: maximum, minimum, masked_fill.
#include <utility>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/elementwise.h"
#include "ops/unary.h"

namespace distag::ops {
namespace {

// ---- gt, ge, lt, le, eq, ne -----------------------------------------------------------------------------------------

// An expression keeps what it is given as a temporary, and refers to all else.
constexpr auto kIsGreater = [](auto&& a, auto&& b) {
  return std::forward<decltype(a)>(a) > std::forward<decltype(b)>(b);
};
constexpr auto kIsNotLess = [](auto&& a, auto&& b) {
  return std::forward<decltype(a)>(a) >= std::forward<decltype(b)>(b);
};
constexpr auto kIsLess = [](auto&& a, auto&& b) { return std::forward<decltype(a)>(a) < std::forward<decltype(b)>(b); };
constexpr auto kIsNotGreater = [](auto&& a, auto&& b) {
  return std::forward<decltype(a)>(a) <= std::forward<decltype(b)>(b);
};
constexpr auto kIsUnequal = [](auto&& a, auto&& b) {
  return xt::not_equal(std::forward<decltype(a)>(a), std::forward<decltype(b)>(b));
};
constexpr auto kIsEqual = [](auto&& a, auto&& b) {
  return xt::equal(std::forward<decltype(a)>(a), std::forward<decltype(b)>(b));
};

// compare(a, b) of each pair, in the dtype to which both are promoted; bools as 0 and 1.
template <Name kName, auto kCompare>
struct Comparison {
  static constexpr auto kOfRows = [](const auto& a, const auto& b) {
    if constexpr (kIsBool<decltype(a)>)
      return kCompare(xt::not_equal(a, 0), xt::not_equal(b, 0));
    else
      return kCompare(a, b);
  };
  static Tensors forward(std::span<const Tensor> inputs, const Attributes&, Saved*) {
    const Pair pair(kName.text, inputs);
    Tensor out = Tensor::empty(Dtype::kBool, pair.shape);
    dispatch(pair.dtype(), [&]<typename T>(T) { compute<Bool, T, T>(out, kOfRows, pair.a, pair.b); });
    return {out};
  }
};

template <Name kName, auto kCompare>
constexpr Op comparison(const char* signature, const char* summary) {
  return {.name = kName.text,
          .signature = signature,
          .summary = summary,
          .forward = Comparison<kName, kCompare>::forward,
          .is_cheap = true};
}

}  // namespace

constexpr Op kGt = comparison<"gt", kIsGreater>("gt(tensor a, tensor b) -> tensor",
                                                "a > b as bool, elementwise, shapes broadcast; false with a NaN.");
constexpr Op kGe = comparison<"ge", kIsNotLess>("ge(tensor a, tensor b) -> tensor",
                                                "a >= b as bool, elementwise, shapes broadcast; false with a NaN.");
constexpr Op kLt = comparison<"lt", kIsLess>("lt(tensor a, tensor b) -> tensor",
                                             "a < b as bool, elementwise, shapes broadcast; false with a NaN.");
constexpr Op kLe = comparison<"le", kIsNotGreater>("le(tensor a, tensor b) -> tensor",
                                                   "a <= b as bool, elementwise, shapes broadcast; false with a NaN.");
constexpr Op kEq = comparison<"eq", kIsEqual>("eq(tensor a, tensor b) -> tensor",
                                              "a == b as bool, elementwise, shapes broadcast; false with a NaN.");
constexpr Op kNe = comparison<"ne", kIsUnequal>("ne(tensor a, tensor b) -> tensor",
                                                "a != b as bool, elementwise, shapes broadcast; true with a NaN.");

// ---- logical_and, logical_or, logical_not ---------------------------------------------------------------------------

namespace {

constexpr auto kNotOf = [](const auto& x) { return xt::equal(x, 0); };

template <typename F>
Tensors truth_of(const char* op, const F& f, std::span<const Tensor> inputs) {
  const Pair pair(op, inputs, Dtype::kBool);
  Tensor out = Tensor::empty(Dtype::kBool, pair.shape);
  compute_alike<Bool>(out, f, pair.a, pair.b);
  return {out};
}

Tensors logical_and_forward(std::span<const Tensor> inputs, const Attributes&, Saved*) {
  return truth_of("logical_and", kProductOf, inputs);
}

Tensors logical_or_forward(std::span<const Tensor> inputs, const Attributes&, Saved*) {
  return truth_of("logical_or", kSumOf, inputs);
}

Tensors logical_not_forward(std::span<const Tensor> inputs, const Attributes&, Saved*) {
  const Tensor x = as_dtype(inputs[0], Dtype::kBool);
  Tensor out = Tensor::empty(Dtype::kBool, x.shape());
  compute_alike<Bool>(out, kNotOf, x);
  return {out};
}

}  // namespace

constexpr Op kLogicalAnd{.name = "logical_and",
                         .signature = "logical_and(tensor a, tensor b) -> tensor",
                         .summary = "Whether both are not 0 (a NaN is not), as bool, elementwise, shapes broadcast.",
                         .forward = logical_and_forward,
                         .is_cheap = true};
constexpr Op kLogicalOr{.name = "logical_or",
                        .signature = "logical_or(tensor a, tensor b) -> tensor",
                        .summary = "Whether either is not 0 (a NaN is not), as bool, elementwise, shapes broadcast.",
                        .forward = logical_or_forward,
                        .is_cheap = true};
constexpr Op kLogicalNot{.name = "logical_not",
                         .signature = "logical_not(tensor x) -> tensor",
                         .summary = "Whether x is 0, as bool, elementwise.",
                         .forward = logical_not_forward,
                         .is_cheap = true};

// ---- maximum, minimum -----------------------------------------------------------------------------------------------

namespace {

// Of two numbers the one that is_taken(it, the other), or NaN where either is; of two bools of_bools(a, b).
template <Name kName, auto kIsTaken, auto kOfBools>
struct Choice {
  static constexpr auto kValueOf = [](const auto& a, const auto& b) {
    if constexpr (kIsBool<decltype(a)>)
      return kOfBools(a, b);
    else
      return select(kIsTaken(a, b) | xt::not_equal(a, a), a, b);
  };
  // The share of the gradient that goes to a: equal ones get half each; with a NaN, both have all of it.
  static constexpr auto kShareOf = [](const auto& a, const auto& b) {
    using T = Element<decltype(a)>;
    return select(kIsTaken(b, a), T(0), select(xt::equal(a, b), T(0.5), T(1)));
  };

  static Tensors forward(std::span<const Tensor> inputs, const Attributes&, Saved* saved) {
    const Pair pair(kName.text, inputs);
    if (saved != nullptr) {
      save_kinds(saved, inputs);
      saved->tensors = {pair.a.snapshot(), pair.b.snapshot()};
    }
    Tensor out = Tensor::empty(pair.dtype(), pair.shape);
    dispatch(pair.dtype(), [&]<typename T>(T) { compute_alike<T>(out, kValueOf, pair.a, pair.b); });
    return {out};
  }

  static Tensors backward(const Saved& saved, Tensors gradients) {
    Tensors result(2);
    const Tensor& g = gradients[0];
    if (!g) return result;
    for (size_t i = 0; i < 2; ++i) {
      if (!saved.needs(i)) continue;
      Tensor share = Tensor::empty(g.dtype(), g.shape());
      dispatch_floating(kName.text, g.dtype(), [&]<typename T>(T) {
        compute_alike<T>(share, kShareOf, saved.tensors[i], saved.tensors[1 - i]);
      });
      result[i] = gradient_of(saved, i, combine(kName.text, kProductOf, share, g));
    }
    return result;
  }
};

}  // namespace

constexpr Op kMaximum = elementwise_op<Choice<"maximum", kIsGreater, kSumOf>>(
    "maximum", "maximum(tensor a, tensor b) -> tensor",
    "The larger of a and b, elementwise, shapes broadcast; equal ones share the gradient.");
constexpr Op kMinimum = elementwise_op<Choice<"minimum", kIsLess, kProductOf>>(
    "minimum", "minimum(tensor a, tensor b) -> tensor",
    "The smaller of a and b, elementwise, shapes broadcast; equal ones share the gradient.");

// ---- masked_fill ----------------------------------------------------------------------------------------------------

namespace {

constexpr auto kFilledOf = [](const auto& mask, const auto& value, const auto& x) {
  return xt::where(xt::not_equal(mask, 0), value, x);
};

Tensor filled_where(const Tensor& mask, double value, const Tensor& x, const Dims& shape) {
  const Tensor number = Tensor::scalar(x.dtype(), value);
  Tensor out = Tensor::empty(x.dtype(), shape);
  dispatch(x.dtype(), [&]<typename T>(T) { compute<T, Bool, T, T>(out, kFilledOf, mask, number, x); });
  return out;
}

Tensors masked_fill_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  const Tensor& mask = inputs[1];
  if (mask.dtype() != Dtype::kBool) {
    fail(Status::kInvalidArgument, "masked_fill: the mask must be bool, not {}; compare it (ne) or cast it",
         describe(mask));
  }
  double value = get_float(attributes, "value", 0.0);
  check_fits("masked_fill", x.dtype(), value);
  if (x.dtype() == Dtype::kBool) value = value != 0 ? 1.0 : 0.0;
  const Dims shape = broadcast_shapes("masked_fill", x.shape(), mask.shape());
  if (saved != nullptr) {
    save_kinds(saved, inputs);
    saved->tensors = {mask.snapshot()};
  }
  return {filled_where(mask, value, x, shape)};
}

Tensors masked_fill_backward(const Saved& saved, Tensors gradients) {
  Tensors result(2);
  const Tensor& g = gradients[0];
  if (g && saved.needs(0)) result[0] = gradient_of(saved, 0, filled_where(saved.tensors[0], 0.0, g, g.shape()));
  return result;
}

}  // namespace

constexpr Op kMaskedFill{
    .name = "masked_fill",
    .signature = "masked_fill(tensor x, tensor mask, float64 value) -> tensor",
    .summary = "value where mask (bool) holds, else x, elementwise, shapes broadcast; x gets no gradient there.",
    .forward = masked_fill_forward,
    .backward = masked_fill_backward,
    .is_cheap = true};

}  // namespace distag::ops
