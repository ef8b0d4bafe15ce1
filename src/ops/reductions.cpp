// Ops that reduce dims: sum, mean, max, amin, any, all.
#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// Converts bools to 0 and 1: any other byte is true, too.
Tensor truth_values(const Tensor& x) {
  Tensor out = Tensor::empty(Dtype::kBool, x.shape());
  compute_alike<Bool>(
      out, [](const auto& r) { return xt::not_equal(r, 0); }, x);
  return out;
}

}  // namespace

// ---- sum ------------------------------------------------------------------------------------------------------------

struct SumOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const Reduction reduction("sum", x, attributes);
    if (saved != nullptr) saved->shapes = {x.shape(), reduction.kept_shape};
    return sum_over(x, reduction.dims, reduction.shape);
  }
  // The gradient is repeated with strides of 0, without allocating it.
  static Tensor backward(const Saved& saved, const Tensor& g) {
    return broadcast_to(with_shape(g, saved.shapes[1]), saved.shapes[0]);
  }
};
constexpr Op kSum =
    make_op<SumOp>("sum(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
                   "The sum over dims ([] for all), which go away or stay with size 1.", kCheap | kOnePass);

// ---- mean -----------------------------------------------------------------------------------------------------------

struct MeanOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    if (!is_floating(x.dtype())) {
      fail(Status::kUnsupported, "mean: dtype {} of {} is not supported: cast it to float32 or float64 first",
           dtype_name(x.dtype()), x);
    }
    const Reduction reduction("mean", x, attributes);
    if (saved != nullptr) saved->shapes = {x.shape(), reduction.kept_shape};
    return mean_over(x, reduction.dims, reduction.shape);
  }

  static Tensor backward(const Saved& saved, Tensor g) {
    const int64_t count = g.count() == 0 ? 1 : element_count(saved.shapes[0]) / g.count();
    const auto share = [count](const auto& row) { return row / static_cast<Element<decltype(row)>>(count); };
    return broadcast_to(with_shape(combine("mean", share, g), saved.shapes[1]), saved.shapes[0]);
  }
};
constexpr Op kMean =
    make_op<MeanOp>("mean(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
                    "The mean over dims ([] for all), which go away or stay with size 1.", kCheap | kOnePass);

// ---- max, amin ------------------------------------------------------------------------------------------------------

namespace {

// The element that kReduce chooses in each group.
template <Name kName, auto kReduce>
struct ChosenOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const Reduction reduction(kName.text, x, attributes);
    require(reduced_count(x.shape(), reduction.dims) > 0, "{}: {} has no elements to choose from", kName.text, x);
    const Tensor y = kReduce(x, reduction.dims, reduction.shape);
    if (saved != nullptr) {
      saved->tensors = {x.snapshot(), with_shape(y, reduction.kept_shape).snapshot()};
      saved->shapes = {reduction.kept_shape};
    }
    return y;
  }

  // The gradient is shared evenly by the elements equal to the chosen one; 0 / 0 = NaN for a group that has a NaN.
  static Tensor backward(const Saved& saved, const Tensor& g) {
    // 1 if an element is the chosen one; 0 everywhere if the chosen one is NaN.
    constexpr auto kIsChosen = [](const auto& x, const auto& chosen) {
      using T = Element<decltype(x)>;
      return xt::where(xt::equal(x, chosen), T(1), T(0));
    };
    const Tensor& x = saved.tensors[0];
    const Dims& kept_shape = saved.shapes[0];
    DimSet dims;
    for (size_t i = 0; i < x.rank(); ++i) dims[i] = x.shape()[i] != kept_shape[i];
    const Tensor is_chosen = value_of(kName.text, kIsChosen, x, saved.tensors[1]);
    const Tensor counts = sum_over(is_chosen, dims, kept_shape);
    const Tensor share = combine(kName.text, kQuotientOf, with_shape(g, kept_shape), counts);
    return combine(kName.text, kProductOf, is_chosen, share);
  }
};

}  // namespace

constexpr Op kMax = make_op<ChosenOp<"max", max_over>>(
    "max(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
    "The largest element over dims ([] for all), which go away or stay with size 1; equal ones share the gradient.",
    kCheap);

constexpr Op kAmin = make_op<ChosenOp<"amin", min_over>>(
    "amin(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
    "The smallest element over dims ([] for all), which go away or stay with size 1; equal ones share the gradient.",
    kCheap);

// ---- any, all -------------------------------------------------------------------------------------------------------

namespace {

// For bools as bytes 0 and 1, the largest tells whether any is true, the smallest whether all are.
template <Name kName, auto kReduce, bool kOfNone>
struct TruthReductionOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved*) {
    const Tensor& x = inputs[0];
    const Reduction reduction(kName.text, x, attributes);
    if (reduced_count(x.shape(), reduction.dims) == 0) {
      return broadcast_to(Tensor::scalar(Dtype::kBool, kOfNone), reduction.shape).clone();
    }
    const Tensor truths = x.dtype() == Dtype::kBool ? truth_values(x) : as_dtype(x, Dtype::kBool);
    return kReduce(truths, reduction.dims, reduction.shape);
  }
};

}  // namespace

constexpr Op kAny = make_op<TruthReductionOp<"any", max_over, false>>(
    "any(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
    "Whether any element over dims ([] for all) is not 0 (a NaN is not), as bool; of none it is false. The dims go "
    "away or stay with size 1.",
    kCheap);

constexpr Op kAll = make_op<TruthReductionOp<"all", min_over, true>>(
    "all(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
    "Whether all elements over dims ([] for all) are not 0 (a NaN is not), as bool; of none it is true. The dims go "
    "away or stay with size 1.",
    kCheap);

}  // namespace distag::ops
