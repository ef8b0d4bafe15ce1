// Ops that compare elements or combine truth values, and ops that choose by one: maximum, minimum, where,
// masked_fill.
#include <functional>
#include <utility>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/require.h"

namespace distag::ops {

// ---- gt, ge, lt, le, eq, ne -----------------------------------------------------------------------------------------
namespace {

// An expression stores temporary operands, and refers to all others.
constexpr std::greater<> kIsGreater;
constexpr std::greater_equal<> kIsNotLess;
constexpr std::less<> kIsLess;
constexpr std::less_equal<> kIsNotGreater;
constexpr auto kIsUnequal = [](auto&& a, auto&& b) {
  return xt::not_equal(std::forward<decltype(a)>(a), std::forward<decltype(b)>(b));
};
constexpr auto kIsEqual = [](auto&& a, auto&& b) {
  return xt::equal(std::forward<decltype(a)>(a), std::forward<decltype(b)>(b));
};

// compare(a, b), with bools as 0 and 1.
template <auto kCompare>
constexpr auto kComparedOf = [](const auto& a, const auto& b) {
  if constexpr (kIsBool<decltype(a)>)
    return kCompare(xt::not_equal(a, 0), xt::not_equal(b, 0));
  else
    return kCompare(a, b);
};

template <Name kName, auto kCompare>
constexpr Op comparison(const char* signature, const char* summary) {
  return truth_of_pair<kName, Takes::kCompared, kComparedOf<kCompare>>(signature, summary);
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

constexpr Op kLogicalAnd = truth_of_pair<"logical_and", Takes::kAsTruths, kProductOf>(
    "logical_and(tensor a, tensor b) -> tensor",
    "Whether both are not 0 (a NaN is not), as bool, elementwise, shapes broadcast.");
constexpr Op kLogicalOr = truth_of_pair<"logical_or", Takes::kAsTruths, kSumOf>(
    "logical_or(tensor a, tensor b) -> tensor",
    "Whether either is not 0 (a NaN is not), as bool, elementwise, shapes broadcast.");

struct LogicalNotOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved*) {
    const Tensor x = as_dtype(inputs[0], Dtype::kBool);
    Tensor out = empty_like(x);
    compute_alike<Bool>(
        out, [](const auto& row) { return xt::equal(row, 0); }, x);
    return out;
  }
};
constexpr Op kLogicalNot =
    make_op<LogicalNotOp>("logical_not(tensor x) -> tensor", "Whether x is 0, as bool, elementwise.", kCheap);

// ---- maximum, minimum -----------------------------------------------------------------------------------------------

namespace {

// For two numbers: the one for which is_taken(it, the other) holds, or NaN if either is NaN; for two bools: of_bools(a,
// b).
template <auto kIsTaken, auto kOfBools>
constexpr auto kChoiceOf = [](const auto& a, const auto& b) {
  if constexpr (kIsBool<decltype(a)>)
    return kOfBools(a, b);
  else
    return select(kIsTaken(a, b) | xt::not_equal(a, a), a, b);
};

// The share of the gradient for `own`: equal elements get half each; with a NaN, both get all of it.
template <auto kIsTaken>
constexpr auto kShareOf = [](const auto& own, const auto& other) {
  using T = Element<decltype(own)>;
  return select(kIsTaken(other, own), T(0), select(xt::equal(own, other), T(0.5), T(1)));
};

template <Name kName, auto kIsTaken, auto kOfBools>
constexpr Op choice(const char* signature, const char* summary) {
  constexpr auto kShare = kShareOf<kIsTaken>;
  return of_pair<kName, Takes::kInOrder, kChoiceOf<kIsTaken, kOfBools>, Share<kShare, kA, kB>, Share<kShare, kB, kA>>(
      signature, summary);
}

}  // namespace

constexpr Op kMaximum = choice<"maximum", kIsGreater, kSumOf>(
    "maximum(tensor a, tensor b) -> tensor",
    "The larger of a and b, elementwise, shapes broadcast; equal ones share the gradient.");
constexpr Op kMinimum = choice<"minimum", kIsLess, kProductOf>(
    "minimum(tensor a, tensor b) -> tensor",
    "The smaller of a and b, elementwise, shapes broadcast; equal ones share the gradient.");

// ---- where, masked_fill ---------------------------------------------------------------------------------------------

namespace {

// a if `mask` holds, else b.
Tensor chosen(const Tensor& mask, const Tensor& a, const Tensor& b, const Dims& shape) {
  constexpr auto kChosen = [](const auto& is_a, const auto& x, const auto& y) {
    return xt::where(xt::not_equal(is_a, 0), x, y);
  };
  Tensor out = Tensor::empty(a.dtype(), shape);
  dispatch(a.dtype(), [&]<typename T>(T) { compute<T, Bool, T, T>(out, kChosen, mask, a, b); });
  return out;
}

}  // namespace

struct WhereOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved* saved) {
    require(inputs[0].dtype() == Dtype::kBool, "where: the condition must be bool, not {}", inputs[0]);
    Pair pair("where", inputs.subspan(1));
    if (saved != nullptr) {
      save_kinds(saved, inputs);
      saved->tensors = {inputs[0].snapshot()};
    }
    return chosen(inputs[0], pair.a, pair.b, broadcast_shapes("where", inputs[0].shape(), pair.shape));
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(3);
    Tensor zero = Tensor::scalar(g.dtype(), 0.0);
    if (saved.needs(1)) result[1] = gradient_of(saved, 1, chosen(saved.tensors[0], g, zero, g.shape()));
    if (saved.needs(2)) result[2] = gradient_of(saved, 2, chosen(saved.tensors[0], zero, g, g.shape()));
    return result;
  }
};
constexpr Op kWhere =
    make_op<WhereOp>("where(tensor condition, tensor x, tensor y) -> tensor",
                     "x where condition (bool) holds, else y, elementwise, shapes broadcast.", kCheap);

struct MaskedFillOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const Tensor& mask = inputs[1];
    require(mask.dtype() == Dtype::kBool, "masked_fill: the mask must be bool, not {}; compare it (ne) or cast it",
            mask);
    double value = get_float(attributes, "value", 0.0);
    check_fits("masked_fill", x.dtype(), value);
    if (x.dtype() == Dtype::kBool) value = value != 0 ? 1.0 : 0.0;
    const Dims shape = broadcast_shapes("masked_fill", x.shape(), mask.shape());
    if (saved != nullptr) {
      save_kinds(saved, inputs);
      saved->tensors = {mask.snapshot()};
    }
    return chosen(mask, Tensor::scalar(x.dtype(), value), x, shape);
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    if (!saved.needs(0)) return Tensors(2);
    const Tensor zero = Tensor::scalar(g.dtype(), 0.0);
    return {gradient_of(saved, 0, chosen(saved.tensors[0], zero, g, g.shape())), Tensor()};
  }
};
constexpr Op kMaskedFill = make_op<MaskedFillOp>(
    "masked_fill(tensor x, tensor mask, float64 value) -> tensor",
    "value where mask (bool) holds, else x, elementwise, shapes broadcast; x gets no gradient there.", kCheap);

}  // namespace distag::ops
