// Ops that move elements without computing: transpose, reshape, slice, concat, detach, clone, cast, repeat.
#include <algorithm>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// ---- transpose ------------------------------------------------------------------------------------------------------

Tensors transpose_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  size_t dim0 = checked_dim("transpose", get_int(attributes, "dim0", 0), x);
  size_t dim1 = checked_dim("transpose", get_int(attributes, "dim1", 0), x);
  if (saved != nullptr) saved->shapes = {Dims{static_cast<int64_t>(dim0), static_cast<int64_t>(dim1)}};
  return {x.rank() == 0 ? x.view(x.shape(), x.strides(), x.offset()) : transposed(x, dim0, dim1)};
}

Tensors transpose_backward(const Saved& saved, Tensors gradients) {
  Tensor& g = gradients[0];
  const Dims& dims = saved.shapes[0];
  if (g && g.rank() > 0) g = transposed(g, static_cast<size_t>(dims[0]), static_cast<size_t>(dims[1]));
  return gradients;
}

}  // namespace

constexpr Op kTranspose{.name = "transpose",
                        .signature = "transpose(tensor x, int64 dim0, int64 dim1) -> tensor",
                        .summary = "x with two dims swapped.",
                        .forward = transpose_forward,
                        .backward = transpose_backward,
                        .is_view = true,
                        .is_cheap = true};

// ---- reshape --------------------------------------------------------------------------------------------------------

namespace {

// The wanted shape with its -1 replaced by what is left.
Dims resolved_shape(const Tensor& x, const Dims& wanted) {
  Dims shape = wanted;
  size_t unknown = shape.size();
  int64_t known = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) continue;
    if (unknown != shape.size()) fail(Status::kInvalidArgument, "reshape: {} has more than one -1", to_string(wanted));
    unknown = i;
    shape[i] = 1;
  }
  known = element_count(shape);
  if (unknown != shape.size()) {
    shape[unknown] = known != 0 && x.count() % known == 0 ? x.count() / known : -1;
    known = shape[unknown] < 0 ? -1 : known * shape[unknown];
  }
  if (known != x.count()) {
    fail(Status::kInvalidArgument, "reshape: {} has {} elements and does not fit shape {}", describe(x), x.count(),
         to_string(wanted));
  }
  return shape;
}

Tensors reshape_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  Dims shape = resolved_shape(x, get_dims(attributes, "shape"));
  if (saved != nullptr) saved->shapes = {x.shape()};
  Tensor y = with_shape(x, shape);
  // A tensor of its own, also where the shape stays.
  if (y.id() == x.id()) y = x.view(x.shape(), x.strides(), x.offset());
  return {y};
}

}  // namespace

constexpr Op kReshape{.name = "reshape",
                      .signature = "reshape(tensor x, int64[] shape) -> tensor",
                      .summary = "x in another shape, in which one size may be -1.",
                      .forward = reshape_forward,
                      .backward = reshaped_back,
                      .is_view = true,
                      .is_cheap = true};

// ---- slice ----------------------------------------------------------------------------------------------------------

namespace {

// As Python does: negative positions count from the end, and what lies outside is cut off.
int64_t clamped_position(int64_t position, int64_t size) {
  if (position < 0) position = position < -size ? 0 : position + size;
  return std::min(position, size);
}

Tensors slice_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  if (x.rank() == 0) fail(Status::kInvalidArgument, "slice: {} has no dim to slice", describe(x));
  size_t dim = checked_dim("slice", get_int(attributes, "dim", 0), x);
  int64_t step = get_int(attributes, "step", 1);
  if (step <= 0) fail(Status::kInvalidArgument, "slice: step {} is not positive", step);
  int64_t size = x.shape()[dim];
  int64_t start = clamped_position(get_int(attributes, "start", 0), size);
  int64_t stop = clamped_position(get_int(attributes, "stop", INT64_MAX), size);
  step = std::min(step, std::max<int64_t>(size, 1));
  int64_t count = stop > start ? (stop - start - 1) / step + 1 : 0;
  if (saved != nullptr) saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dim), start, count, step}};
  return {sliced(x, dim, start, count, step)};
}

Tensors slice_backward(const Saved& saved, Tensors gradients) {
  Tensor g = std::move(gradients[0]);
  if (!g) return gradients;
  const Dims& what = saved.shapes[1];
  Tensor result = zero_tensor(g.dtype(), saved.shapes[0]);
  write_part(result, sliced(result, static_cast<size_t>(what[0]), what[1], what[2], what[3]), g);
  return {result};
}

}  // namespace

constexpr Op kSlice{
    .name = "slice",
    .signature =
        "slice(tensor x, int64 dim = 0, int64 start = 0, int64 stop = 9223372036854775807, int64 step = 1) -> tensor",
    .summary = "start, start + step, and so on, below stop, of one dim of x.",
    .forward = slice_forward,
    .backward = slice_backward,
    .is_view = true,
    .is_cheap = true};

// ---- concat ---------------------------------------------------------------------------------------------------------

namespace {

void check_concat(std::span<const Tensor> inputs, size_t dim) {
  for (const Tensor& x : inputs) {
    bool fits = x.rank() == inputs[0].rank();
    for (size_t i = 0; i < x.rank() && fits; ++i) fits = i == dim || x.shape()[i] == inputs[0].shape()[i];
    if (!fits) {
      fail(Status::kInvalidArgument, "concat: {} and {} differ in more than dim {}", describe(inputs[0]), describe(x),
           dim);
    }
  }
}

Tensors concat_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  if (inputs[0].rank() == 0) {
    fail(Status::kInvalidArgument, "concat: {} has no dim to be joined along", describe(inputs[0]));
  }
  size_t dim = checked_dim("concat", get_int(attributes, "dim", 0), inputs[0]);
  check_concat(inputs, dim);
  Dims shape = inputs[0].shape();
  Dtype dtype = inputs[0].dtype();
  shape[dim] = 0;
  for (const Tensor& x : inputs) {
    shape[dim] = joined_size("concat", shape[dim], x.shape()[dim]);
    dtype = promote(dtype, x.dtype());
  }
  Tensor y = Tensor::empty(dtype, shape);
  int64_t start = 0;
  for (const Tensor& x : inputs) {
    write_part(y, sliced(y, dim, start, x.shape()[dim]), as_dtype(x, dtype));
    start += x.shape()[dim];
  }
  if (saved != nullptr) {
    saved->shapes.push_back(Dims{static_cast<int64_t>(dim)});
    for (const Tensor& x : inputs) {
      saved->shapes.push_back(Dims{x.shape()[dim]});
      saved->dtypes.push_back(x.dtype());
    }
  }
  return {y};
}

Tensors concat_backward(const Saved& saved, Tensors gradients) {
  Tensors result(saved.dtypes.size());
  const Tensor& g = gradients[0];
  if (!g) return result;
  auto dim = static_cast<size_t>(saved.shapes[0][0]);
  int64_t start = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    int64_t size = saved.shapes[i + 1][0];
    if (saved.needs(i)) result[i] = as_dtype(sliced(g, dim, start, size), saved.dtypes[i]);
    start += size;
  }
  return result;
}

}  // namespace

constexpr Op kConcat{.name = "concat",
                     .signature = "concat(tensor... xs, int64 dim = 0) -> tensor",
                     .summary = "Tensors one after the other along dim; their other sizes are equal.",
                     .forward = concat_forward,
                     .backward = concat_backward,
                     .is_cheap = true};

// ---- detach, clone, cast --------------------------------------------------------------------------------------------

namespace {

Tensors detach_forward(std::span<const Tensor> inputs, const Attributes&, Saved*) {
  const Tensor& x = inputs[0];
  return {x.view(x.shape(), x.strides(), x.offset())};
}

}  // namespace

constexpr Op kDetach{.name = "detach",
                     .signature = "detach(tensor x) -> tensor",
                     .summary = "x without history, over the same storage.",
                     .forward = detach_forward,
                     .is_view = true,
                     .is_cheap = true};

namespace {

Tensors clone_forward(std::span<const Tensor> inputs, const Attributes&, Saved*) { return {inputs[0].clone()}; }

Tensors clone_backward(const Saved&, Tensors gradients) { return gradients; }

}  // namespace

constexpr Op kClone{.name = "clone",
                    .signature = "clone(tensor x) -> tensor",
                    .summary = "x in storage of its own.",
                    .forward = clone_forward,
                    .backward = clone_backward,
                    .is_cheap = true};

namespace {

Tensors cast_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  Dtype dtype = get_dtype(attributes, "dtype", x.dtype());
  if (saved != nullptr) saved->dtypes = {x.dtype()};
  // To its own dtype: the values of now, copied by whoever writes first.
  return {dtype == x.dtype() ? x.snapshot() : as_dtype(x, dtype)};
}

Tensors cast_backward(const Saved& saved, Tensors gradients) {
  if (gradients[0]) gradients[0] = as_dtype(gradients[0], saved.dtypes[0]);
  return gradients;
}

}  // namespace

constexpr Op kCast{.name = "cast",
                   .signature = "cast(tensor x, dtype dtype) -> tensor",
                   .summary = "x in another dtype.",
                   .forward = cast_forward,
                   .backward = cast_backward,
                   .is_cheap = true};

// ---- repeat ---------------------------------------------------------------------------------------------------------

namespace {

constexpr int64_t kMostRepeats = int64_t{1} << 24;

Dims checked_repeats(const Tensor& x, const Dims& repeats) {
  bool fits = repeats.size() >= x.rank();
  for (const int64_t count : repeats) fits = fits && count >= 0 && count <= kMostRepeats;
  if (fits) return repeats;
  fail(Status::kInvalidArgument, "repeat: repeats {} must be {} numbers or more, from 0 to {}, for {}",
       to_string(repeats), x.rank(), kMostRepeats, describe(x));
}

// Row-major x, which has elements, `count` times along dim.
Tensor with_copies(const Tensor& x, size_t dim, int64_t count) {
  const Slabs slabs(x.shape(), dim);
  const int64_t inner = slabs.size * slabs.inner;
  const Tensor one = with_shape(x, Dims{slabs.outer, 1, inner});
  Dims shape = x.shape();
  shape[dim] *= count;
  return with_shape(broadcast_to(one, Dims{slabs.outer, count, inner}).contiguous(), shape);
}

Tensors repeat_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  const Dims repeats = checked_repeats(x, get_dims(attributes, "repeats"));
  Dims led;
  led.resize(repeats.size() - x.rank(), 1);
  for (const int64_t size : x.shape()) led.push_back(size);
  Dims shape = led;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!__builtin_mul_overflow(led[d], repeats[d], &shape[d])) continue;
    fail(Status::kInvalidArgument, "repeat: {} times dim {} of {} is more than an int64 holds", repeats[d], d,
         to_string(led));
  }
  if (saved != nullptr) saved->shapes = {x.shape(), repeats};
  if (element_count(shape, dtype_size(x.dtype())) == 0) return {Tensor::empty(x.dtype(), shape)};
  if (shape == led) return {with_shape(x.clone(), shape)};
  Tensor y = with_shape(x.contiguous(), led);
  for (size_t d = shape.size(); d-- > 0;) {
    if (repeats[d] != 1) y = with_copies(y, d, repeats[d]);
  }
  return {y};
}

// The sums over the copies, of several dims in double so that each is rounded once.
Tensors repeat_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  const Dtype dtype = gradients[0].dtype();
  const Dims& repeats = saved.shapes[1];
  if (gradients[0].count() == 0) return {zero_tensor(dtype, saved.shapes[0])};
  const auto summed = std::count_if(repeats.begin(), repeats.end(), [](int64_t count) { return count != 1; });
  Tensor g = (summed > 1 ? as_dtype(gradients[0], Dtype::kFloat64) : gradients[0]).contiguous();
  Dims left = g.shape();
  for (size_t d = 0; d < left.size(); ++d) {
    if (repeats[d] == 1) continue;
    left[d] /= repeats[d];
    const Slabs slabs(left, d);
    const Tensor copies = with_shape(g, Dims{slabs.outer, repeats[d], slabs.size * slabs.inner});
    g = sum_over(copies, DimSet(2), left);
  }
  return {as_dtype(with_shape(g, saved.shapes[0]), dtype)};
}

}  // namespace

constexpr Op kRepeat{.name = "repeat",
                     .signature = "repeat(tensor x, int64[] repeats) -> tensor",
                     .summary =
                         "x repeats[i] times along each dim i, of which the first are new ones where there are more "
                         "repeats than dims of x.",
                     .forward = repeat_forward,
                     .backward = repeat_backward};

}  // namespace distag::ops
