// Recorded backwards of the ops that move elements.
#include <algorithm>

#include "autograd/recorded_step.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"

namespace distag::autograd::recorded {
namespace {

using ops::make_attributes;

const Dims& saved_shape(const RecordedStep& step, size_t i) { return step.saved().shapes[i]; }

Tensor padded(const Tensor& x, int64_t dim, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  return call(ops::kPad, {x}, make_attributes({{"dim", dim}, {"before", before}, {"after", after}}));
}

Tensors transpose_gradients(const RecordedStep& step, const Tensors& gradients) {
  if (gradients[0].rank() == 0) return gradients;
  const Dims& dims = saved_shape(step, 0);
  return {transpose(gradients[0], static_cast<size_t>(dims[0]), static_cast<size_t>(dims[1]))};
}

// reshape, squeeze, unsqueeze
Tensors reshaped_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {reshape(gradients[0], saved_shape(step, 0))};
}

// With a step, zeros are put between the elements first.
Tensors slice_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Dims& whole = saved_shape(step, 0);
  const Dims& what = saved_shape(step, 1);  // dim, start, count, step
  const auto dim = static_cast<size_t>(what[0]);
  const int64_t start = what[1];
  const int64_t count = what[2];
  const int64_t stride = what[3];
  Tensor g = gradients[0];
  if (count == 0) return {expand(number_like(g, 0.0), whole)};
  int64_t length = count;
  if (stride > 1 && count > 1) {
    Dims apart;
    for (size_t i = 0; i < g.rank(); ++i) {
      apart.push_back(g.shape()[i]);
      if (i == dim) apart.push_back(1);
    }
    Dims together = g.shape();
    together[dim] = count * stride;
    g = reshape(padded(reshape(g, apart), what[0] + 1, 0, stride - 1), together);
    length = (count - 1) * stride + 1;
    g = part(g, dim, 0, length);
  }
  return {padded(g, what[0], start, whole[dim] - start - length)};
}

Tensors concat_gradients(const RecordedStep& step, const Tensors& gradients) {
  const auto dim = static_cast<size_t>(saved_shape(step, 0)[0]);
  Tensors result(step.input_count());
  int64_t start = 0;
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t size = saved_shape(step, i + 1)[0];
    if (step.needs(i)) result[i] = cast(part(gradients[0], dim, start, size), step.saved().dtypes[i]);
    start += size;
  }
  return result;
}

Tensors clone_gradients(const RecordedStep&, const Tensors& gradients) { return gradients; }

Tensors cast_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {cast(gradients[0], step.saved().dtypes[0])};
}

Tensors permute_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {call(ops::kPermute, gradients, make_attributes({{"dims", saved_shape(step, 0)}}))};
}

Tensors expand_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {step.gradient_of(0, gradients[0])};
}

Tensors stack_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result = concat_gradients(step, gradients);
  for (Tensor& one : result) one = one ? reshape(one, step.saved().shapes.back()) : one;
  return result;
}

// Parts that no gradient reached count as zeros.
Tensors split_gradients(const RecordedStep& step, const Tensors& gradients) {
  Dims shape = saved_shape(step, 0);
  const int64_t dim = saved_shape(step, 2)[0];
  const auto reached = std::find_if(gradients.begin(), gradients.end(), [](const Tensor& g) { return bool(g); });
  if (reached == gradients.end()) return {Tensor()};
  const Tensor zero = Tensor::scalar(reached->dtype(), 0.0);
  Tensors parts;
  for (size_t i = 0; i < gradients.size(); ++i) {
    shape[static_cast<size_t>(dim)] = saved_shape(step, 1)[i];
    parts.push_back(gradients[i] ? gradients[i] : ops::broadcast_to(zero, shape));
  }
  return {call(ops::kConcat, parts, make_attributes({{"dim", dim}}))};
}

Tensor flipped(const Tensor& x, const Dims& dims) {
  return x.rank() == 0 ? x : call(ops::kFlip, {x}, make_attributes({{"dims", dims}}));
}

Tensors pad_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Dims& what = saved_shape(step, 0);
  return {part(gradients[0], static_cast<size_t>(what[0]), what[1], what[2])};
}

// An op whose gradient is the op itself.
template <const ops::Op& op>
Tensors applied_again(const RecordedStep& step, const Tensors& gradients) {
  return {call(op, gradients, step.saved().attributes)};
}

// Sums from the end on.
Tensors cumsum_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Dims& dim = saved_shape(step, 0);
  const Tensor sums = call(ops::kCumsum, {flipped(gradients[0], dim)}, make_attributes({{"dim", dim[0]}}));
  return {flipped(sums, dim)};
}

// Sums over the copies, dim by dim.
Tensors repeat_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Dims& shape = saved_shape(step, 0);
  const Dims& repeats = saved_shape(step, 1);
  Tensor g = gradients[0];
  if (g.count() == 0) return {expand(number_like(g, 0.0), shape)};
  Dims left = g.shape();
  for (size_t d = 0; d < left.size(); ++d) {
    if (repeats[d] == 1) continue;
    left[d] /= repeats[d];
    int64_t inner = 1;
    for (size_t i = d; i < left.size(); ++i) inner *= left[i];
    const Dims copies{g.count() / inner / repeats[d], repeats[d], inner};
    g = reshape(sum_along(reshape(g, copies), Dims{1}), left);
  }
  return {reshape(g, shape)};
}

constexpr RecordedOp kShapes[] = {
    {&ops::kTranspose, transpose_gradients},  {&ops::kReshape, reshaped_gradients},
    {&ops::kSqueeze, reshaped_gradients},     {&ops::kUnsqueeze, reshaped_gradients},
    {&ops::kSlice, slice_gradients},          {&ops::kConcat, concat_gradients},
    {&ops::kClone, clone_gradients},          {&ops::kCast, cast_gradients},
    {&ops::kPermute, permute_gradients},      {&ops::kExpand, expand_gradients},
    {&ops::kStack, stack_gradients},          {&ops::kSplit, split_gradients},
    {&ops::kFlip, applied_again<ops::kFlip>}, {&ops::kPad, pad_gradients},
    {&ops::kTril, applied_again<ops::kTril>}, {&ops::kTriu, applied_again<ops::kTriu>},
    {&ops::kCumsum, cumsum_gradients},        {&ops::kRepeat, repeat_gradients},
};

}  // namespace

std::span<const RecordedOp> shape_ops() { return kShapes; }

}  // namespace distag::autograd::recorded
