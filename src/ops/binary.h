#pragma once

#include <span>
#include <utility>

#include "ops/unary.h"

// Elementwise ops of two tensors. Each has a name, signature, summary, and three expressions: the value for rows a and
// b, and the gradients of both from the gradient g of the result and rows that forward saved.
namespace distag::ops {

// The type in which numbers of T are added and multiplied, so that integers wrap around.
template <typename T>
using Wrapping = std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>;

template <typename Row>
inline constexpr bool kIsBool = std::is_same_v<Element<Row>, Bool>;

// Bools are added by "or" and multiplied by "and".
constexpr auto kSumOf = [](const auto& a, const auto& b) {
  if constexpr (kIsBool<decltype(a)>)
    return xt::not_equal(a | b, 0);
  else
    return a + b;
};
constexpr auto kDifferenceOf = [](const auto& a, const auto& b) { return a - b; };
constexpr auto kProductOf = [](const auto& a, const auto& b) {
  if constexpr (kIsBool<decltype(a)>)
    return xt::not_equal(a, 0) & xt::not_equal(b, 0);
  else
    return a * b;
};
constexpr auto kQuotientOf = [](const auto& a, const auto& b) { return a / b; };
constexpr auto kNegationOf = [](const auto& x) {
  if constexpr (std::is_floating_point_v<Element<decltype(x)>>)
    return -x;
  else
    return uint64_t{0} - x;
};

// Two prepared inputs: one dtype, and the shape to which both broadcast.
struct Pair {
  Tensor a;
  Tensor b;
  Dims shape;

  Pair(const char* op, Inputs inputs) : Pair(op, inputs, result_dtype(inputs[0], inputs[1])) {}
  Pair(const char* op, Inputs inputs, Dtype dtype)
      : a(as_dtype(inputs[0], dtype)),
        b(as_dtype(inputs[1], dtype)),
        shape(broadcast_shapes(op, inputs[0].shape(), inputs[1].shape())) {}
  Dtype dtype() const { return a.dtype(); }
};

// Saves the shapes and dtypes of both inputs for reduce_to().
inline void save_kinds(Saved* saved, Inputs inputs) {
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

// Writes -x of numbers into `out`, which may be x.
inline Tensor negated(const char* op, Tensor out, const Tensor& x) {
  dispatch_numeric(op, x.dtype(), [&]<typename T>(T) { compute_alike<Wrapping<T>>(out, kNegationOf, x); });
  return out;
}

// How an op treats the dtype to which both inputs are promoted.
enum class Takes {
  kEach,       // computes in this dtype; integers wrap around
  kInOrder,    // the same, but integers keep their signs
  kNumbers,    // rejects bools
  kAsNumbers,  // bools become int64
  kAsFloats,   // bools and integers become float32
  kCompared,   // compares numbers, with bools as results
  kAsTruths,   // all values become bool
};

inline Dtype dtype_for(Takes takes, Dtype promoted) {
  if (takes == Takes::kAsTruths) return Dtype::kBool;
  if (takes == Takes::kAsNumbers && promoted == Dtype::kBool) return Dtype::kInt64;
  return takes == Takes::kAsFloats && !is_floating(promoted) ? Dtype::kFloat32 : promoted;
}

// value(a, b), in the shape to which both broadcast.
template <Takes kTakes, typename F>
Tensor value_of_pair(const char* op, const F& value, const Pair& pair) {
  constexpr bool kIsTruth = kTakes == Takes::kCompared || kTakes == Takes::kAsTruths;
  constexpr bool kHasSigns = kIsTruth || kTakes == Takes::kInOrder;
  Tensor out = Tensor::empty(kIsTruth ? Dtype::kBool : pair.dtype(), pair.shape);
  const auto visit = [&]<typename T>(T) {
    using In = std::conditional_t<kHasSigns, T, Wrapping<T>>;
    compute<std::conditional_t<kIsTruth, Bool, In>, In, In>(out, value, pair.a, pair.b);
  };
  if constexpr (kTakes == Takes::kAsTruths)
    visit(Bool{});
  else if constexpr (kTakes == Takes::kAsFloats)
    dispatch_floating(op, pair.dtype(), visit);
  else if constexpr (kTakes == Takes::kNumbers || kTakes == Takes::kAsNumbers)
    dispatch_numeric(op, pair.dtype(), visit);
  else
    dispatch(pair.dtype(), visit);
  return out;
}

// Indices of the inputs and the result among the saved tensors; those that no needed gradient uses are undefined.
enum Place : size_t { kA, kB, kY };

// The gradient of an input equals that of the result.
struct Passed {
  static constexpr bool uses(size_t) { return false; }
  static Tensor of(const char*, const Saved& saved, size_t input, Tensor g) {
    return gradient_of(saved, input, std::move(g));
  }
};

// kOf(g, rows at the places that it uses), in place of g if g is exclusive.
template <auto kOf, Place... kUsed>
struct Slope {
  static constexpr bool uses(size_t place) { return ((kUsed == place) || ...); }
  static Tensor of(const char* op, const Saved& saved, size_t input, Tensor g) {
    return gradient_of(saved, input, combine(op, kOf, g, saved.tensors[kUsed]...));
  }
};

// kOf(rows at the places that it uses) * g. Uses two passes if an operand repeats an element along a row, because rows
// like that are slow beside two others.
template <auto kOf, Place... kUsed>
struct Share : Slope<kOf, kUsed...> {
  static constexpr auto kTimes = [](const auto& g, const auto&... rows) { return kOf(rows...) * g; };
  static Tensor of(const char* op, const Saved& saved, size_t input, Tensor g) {
    const auto has_rows = [&g](const Tensor& x) {
      return x.is_contiguous() && x.rank() > 0 && x.shape().back() == g.shape().back();
    };
    if (has_rows(g) && (has_rows(saved.tensors[kUsed]) && ...)) {
      return Slope<kTimes, kUsed...>::of(op, saved, input, std::move(g));
    }
    const Tensor share = computed(op, empty_like(g), kOf, saved.tensors[kUsed]...);
    return gradient_of(saved, input, combine(op, kProductOf, share, g));
  }
};

// The negated gradient. It is summed first, as fewer elements remain to be negated.
template <typename Gradient>
struct Minus : Gradient {
  static Tensor of(const char* op, const Saved& saved, size_t input, Tensor g) {
    const Tensor summed = Gradient::of(op, saved, input, std::move(g));
    return negated(op, output_for(summed), summed);
  }
};

template <Name kName, Takes kTakes, auto kValue, typename OfA = Passed, typename OfB = Passed>
struct PairOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved* saved) {
    const Pair pair(kName.text, inputs, dtype_for(kTakes, result_dtype(inputs[0], inputs[1])));
    const Tensor y = value_of_pair<kTakes>(kName.text, kValue, pair);
    save_kinds(saved, inputs);
    if (saved != nullptr && kPlaces > 0) {
      saved->tensors.resize(kPlaces);
      for (size_t place = 0; place < kPlaces; ++place) {
        const bool is_used = (saved->needs(0) && OfA::uses(place)) || (saved->needs(1) && OfB::uses(place));
        if (is_used) saved->tensors[place] = (place == kA ? pair.a : place == kB ? pair.b : y).snapshot();
      }
    }
    return y;
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(2);
    // The result goes into new memory if the gradient is needed once more.
    if (saved.needs(1)) result[1] = OfB::of(kName.text, saved, 1, saved.needs(0) ? g : std::move(g));
    if (saved.needs(0)) result[0] = OfA::of(kName.text, saved, 0, std::move(g));
    return result;
  }

 private:
  static constexpr bool uses(size_t place) { return OfA::uses(place) || OfB::uses(place); }
  static constexpr size_t kPlaces = uses(kY) ? 3 : uses(kB) ? 2 : uses(kA) ? 1 : 0;
};

template <Name kName, Takes kTakes, auto kValue, typename OfA, typename OfB>
constexpr Op of_pair(const char* signature, const char* summary, Trait more = kNoTrait) {
  return make_op<PairOp<kName, kTakes, kValue, OfA, OfB>>(signature, summary, kCheap | more);
}

// An op without a gradient.
template <Name kName, Takes kTakes, auto kValue>
struct TruthOp {
  static constexpr auto forward = PairOp<kName, kTakes, kValue>::forward;
};

template <Name kName, Takes kTakes, auto kValue>
constexpr Op truth_of_pair(const char* signature, const char* summary) {
  return make_op<TruthOp<kName, kTakes, kValue>>(signature, summary, kCheap);
}

}  // namespace distag::ops
