// Ops that reduce dims: sum, mean, max, amin, any, all.
#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// Which dims an application reduces, and what shape that gives.
struct Reduction {
  DimSet dims;
  Dims shape;       // of the result
  Dims kept_shape;  // with the reduced dims as 1: broadcasts to x

  Reduction(const char* op, const Tensor& x, const Attributes& attributes)
      : dims(checked_dims(op, get_dims(attributes, "dims"), x)),
        shape(reduced_shape(x.shape(), dims, get_bool(attributes, "keepdim", false))),
        kept_shape(reduced_shape(x.shape(), dims, true)) {}
};

// Bools as 0 and 1: any other byte is true, too.
Tensor truth_values(const Tensor& x) {
  Tensor out = Tensor::empty(Dtype::kBool, x.shape());
  compute_alike<Bool>(
      out, [](const auto& r) { return xt::not_equal(r, 0); }, x);
  return out;
}

// ---- sum ------------------------------------------------------------------------------------------------------------

Tensors sum_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  Reduction reduction("sum", x, attributes);
  if (saved != nullptr) saved->shapes = {x.shape(), reduction.kept_shape};
  return {sum_over(x, reduction.dims, reduction.shape)};
}

// Without memory of its own: the gradient repeated with strides of 0.
Tensors sum_backward(const Saved& saved, Tensors gradients) {
  Tensor& g = gradients[0];
  if (g) g = broadcast_to(with_shape(g, saved.shapes[1]), saved.shapes[0]);
  return gradients;
}

}  // namespace

constexpr Op kSum{.name = "sum",
                  .signature = "sum(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
                  .summary = "The sum over dims ([] for all), which go away or stay with size 1.",
                  .forward = sum_forward,
                  .backward = sum_backward,
                  .is_cheap = true,
                  .is_one_pass = true};

// ---- mean -----------------------------------------------------------------------------------------------------------

namespace {

Tensors mean_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  if (!is_floating(x.dtype())) {
    fail(Status::kUnsupported, "mean: dtype {} of {} is not supported: cast it to float32 or float64 first",
         dtype_name(x.dtype()), describe(x));
  }
  Reduction reduction("mean", x, attributes);
  if (saved != nullptr) saved->shapes = {x.shape(), reduction.kept_shape};
  return {mean_over(x, reduction.dims, reduction.shape)};
}

Tensors mean_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  const Tensor g = std::move(gradients[0]);
  const int64_t count = g.count() == 0 ? 1 : element_count(saved.shapes[0]) / g.count();
  const Tensor share = combine(
      "mean", [count](const auto& row) { return row / static_cast<Element<decltype(row)>>(count); }, g);
  return {broadcast_to(with_shape(share, saved.shapes[1]), saved.shapes[0])};
}

}  // namespace

constexpr Op kMean{.name = "mean",
                   .signature = "mean(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
                   .summary = "The mean over dims ([] for all), which go away or stay with size 1.",
                   .forward = mean_forward,
                   .backward = mean_backward,
                   .is_cheap = true,
                   .is_one_pass = true};

// ---- max, amin ------------------------------------------------------------------------------------------------------

namespace {

// 1 where an element is the chosen one; nowhere where that is NaN.
constexpr auto kIsChosen = [](const auto& x, const auto& chosen) {
  using T = Element<decltype(x)>;
  return xt::where(xt::equal(x, chosen), T(1), T(0));
};

// The one that kReduce chooses in each group.
template <Name kName, auto kReduce>
Tensors chosen_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  const Reduction reduction(kName.text, x, attributes);
  if (reduced_count(x.shape(), reduction.dims) == 0) {
    fail(Status::kInvalidArgument, "{}: {} has no elements to choose from", kName.text, describe(x));
  }
  const Tensor y = kReduce(x, reduction.dims, reduction.shape);
  if (saved != nullptr) {
    saved->tensors = {x.snapshot(), with_shape(y, reduction.kept_shape).snapshot()};
    saved->shapes = {reduction.kept_shape};
  }
  return {y};
}

// Shared evenly by elements equal to the chosen one; 0 / 0, so NaN, for all of which one is NaN.
Tensors chosen_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  const Tensor& x = saved.tensors[0];
  const Dims& kept_shape = saved.shapes[0];
  Tensor result = Tensor::empty(x.dtype(), x.shape());
  Tensor share = Tensor::empty(x.dtype(), kept_shape);
  DimSet dims;
  for (size_t i = 0; i < x.rank(); ++i) dims[i] = x.shape()[i] != kept_shape[i];
  dispatch_floating("gradient of a chosen element", x.dtype(), [&]<typename T>(T) {
    compute_alike<T>(result, kIsChosen, x, saved.tensors[1]);
    Tensor counts = sum_over(result, dims, kept_shape);
    compute_alike<T>(share, kQuotientOf, with_shape(gradients[0], kept_shape), counts);
    compute_alike<T>(result, kProductOf, result, share);
  });
  return {result};
}

}  // namespace

constexpr Op kMax{
    .name = "max",
    .signature = "max(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
    .summary =
        "The largest element over dims ([] for all), which go away or stay with size 1; equal ones share the gradient.",
    .forward = chosen_forward<"max", max_over>,
    .backward = chosen_backward,
    .is_cheap = true};

constexpr Op kAmin{.name = "amin",
                   .signature = "amin(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
                   .summary =
                       "The smallest element over dims ([] for all), which go away or stay with size 1; equal ones "
                       "share the gradient.",
                   .forward = chosen_forward<"amin", min_over>,
                   .backward = chosen_backward,
                   .is_cheap = true};

// ---- any, all -------------------------------------------------------------------------------------------------------

namespace {

// Of bools as bytes 0 and 1 the largest is whether any is true, the smallest whether all are.
template <Name kName, auto kReduce, bool kOfNone>
Tensors truth_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved*) {
  const Tensor& x = inputs[0];
  const Reduction reduction(kName.text, x, attributes);
  if (reduced_count(x.shape(), reduction.dims) == 0) {
    return {broadcast_to(Tensor::scalar(Dtype::kBool, kOfNone), reduction.shape).clone()};
  }
  const Tensor truths = x.dtype() == Dtype::kBool ? truth_values(x) : as_dtype(x, Dtype::kBool);
  return {kReduce(truths, reduction.dims, reduction.shape)};
}

}  // namespace

constexpr Op kAny{.name = "any",
                  .signature = "any(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
                  .summary =
                      "Whether any element over dims ([] for all) is not 0 (a NaN is not), as bool; of none it is "
                      "false. The dims go away or stay with size 1.",
                  .forward = truth_forward<"any", max_over, false>,
                  .is_cheap = true};
constexpr Op kAll{.name = "all",
                  .signature = "all(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
                  .summary =
                      "Whether all elements over dims ([] for all) are not 0 (a NaN is not), as bool; of none it is "
                      "true. The dims go away or stay with size 1.",
                  .forward = truth_forward<"all", min_over, true>,
                  .is_cheap = true};

}  // namespace distag::ops
