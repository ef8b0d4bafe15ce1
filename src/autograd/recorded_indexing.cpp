// Recorded backwards of the ops that choose elements by an index, or add to those: gather, index_select, embedding,
// topk, sort, min_with_indices, max_with_indices, index_add, scatter_add; and of pooling.
#include <algorithm>

#include "autograd/recorded_step.h"
#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/views.h"

namespace distag::autograd::recorded {
namespace {

using ops::make_attributes;

// ---- the gradients of gather and index_select: zeros of a shape, to which g is added at an index along dim ----------

template <const ops::Op& op>
Tensors scatter_forward(std::span<const Tensor> inputs, const ops::Attributes& attributes, ops::Saved* saved) {
  ops::Saved of_choice;
  of_choice.tensors = {inputs[1]};
  of_choice.shapes = {ops::get_dims(attributes, "shape"), Dims{ops::get_int(attributes, "dim", 0)}};
  if (saved != nullptr) {
    saved->tensors = {inputs[1].snapshot()};
    saved->attributes = make_attributes({{"dim", ops::get_int(attributes, "dim", 0)}});
  }
  return {op.backward(of_choice, {inputs[0]})[0]};
}

// The elements of the gradient at the index.
template <const ops::Op& op>
Tensors scatter_backward(const ops::Saved& saved, Tensors gradients) {
  Tensors result(2);
  if (gradients[0]) result[0] = call(op, {gradients[0], saved.tensors[0]}, saved.attributes);
  return result;
}

template <const ops::Op& op>
Tensors scatter_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {call(op, {gradients[0], step.saved().tensors[0]}, step.saved().attributes)};
}

constexpr ops::Op kGatherGradient{.signature = "scatter(tensor g, tensor index, int64[] shape, int64 dim) -> tensor",
                                  .forward = scatter_forward<ops::kGather>,
                                  .backward = scatter_backward<ops::kGather>,
                                  .name = "gradient of gather"};

constexpr ops::Op kIndexSelectGradient{
    .signature = "scatter(tensor g, tensor index, int64[] shape, int64 dim) -> tensor",
    .forward = scatter_forward<ops::kIndexSelect>,
    .backward = scatter_backward<ops::kIndexSelect>,
    .name = "gradient of index_select"};

Tensor scattered(const ops::Op& op, const Tensor& g, const Tensor& index, const Dims& shape, int64_t dim) {
  return call(op, {g, index}, make_attributes({{"shape", shape}, {"dim", dim}}));
}

template <const ops::Op& op>
Tensors choice_gradient(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  return {scattered(op, gradients[0], saved.tensors[0], saved.shapes[0], saved.shapes[1][0])};
}

// Forward kept the index with `dim` as its last dim.
Tensors ordered_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Dims& shape = step.saved().shapes[0];
  if (shape.empty()) return {gradients[0]};
  const int64_t dim = step.saved().shapes[1][0];
  Dims order;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    order.push_back(d < dim ? d : d == dim ? static_cast<int64_t>(shape.size()) - 1 : d - 1);
  }
  const Tensor index = ops::permuted(step.saved().tensors[0], order).contiguous();
  return {scattered(kGatherGradient, gradients[0], index, shape, dim)};
}

// For an op whose result lost the dim or keeps it with size 1.
Tensors extreme_gradients(const RecordedStep& step, const Tensors& gradients) {
  Dims kept = step.saved().shapes[0];
  if (!kept.empty()) kept[static_cast<size_t>(step.saved().shapes[1][0])] = 1;
  return ordered_gradients(step, {reshape(gradients[0], kept)});
}

// ---- index_add, scatter_add -----------------------------------------------------------------------------------------

Tensors index_add_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  Tensors result(3);
  if (step.needs(0)) result[0] = gradients[0];
  if (!step.needs(2)) return result;
  const ops::Attributes along = make_attributes({{"dim", saved.shapes[1][0]}});
  result[2] = call(ops::kIndexSelect, {gradients[0], saved.tensors[0]}, along);
  return result;
}

// Forward added the leading part of the source, up to the shape of the index; the rest has a gradient of 0.
Tensors scatter_add_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  const Tensor& index = saved.tensors[0];
  Tensors result(3);
  if (step.needs(0)) result[0] = gradients[0];
  if (!step.needs(2)) return result;
  Tensor g = call(ops::kGather, {gradients[0], index}, make_attributes({{"dim", saved.shapes[1][0]}}));
  for (size_t d = 0; d < index.rank(); ++d) {
    const int64_t rest = saved.shapes[0][d] - index.shape()[d];
    if (rest > 0) g = call(ops::kPad, {g}, make_attributes({{"dim", static_cast<int64_t>(d)}, {"after", rest}}));
  }
  result[2] = g;
  return result;
}

// ---- embedding, max_pool2d, avg_pool2d ------------------------------------------------------------------------------

Tensors embedding_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  const Tensor& index = saved.tensors[0];
  const Tensor rows = reshape(gradients[0], Dims{index.count(), saved.shapes[0][1]});
  const Tensor flat = ops::with_shape(index, Dims{index.count()});
  return {Tensor(), scattered(kIndexSelectGradient, rows, flat, saved.shapes[0], 0)};
}

// The index counts within a plane.
Tensors max_pool2d_gradients(const RecordedStep& step, const Tensors& gradients) {
  const Dims& shape = step.saved().shapes[0];
  const Dims& out = gradients[0].shape();
  const int64_t planes = shape[0] * shape[1];
  const Dims flat{planes, out[2] * out[3]};
  const Tensor index = ops::with_shape(step.saved().tensors[0], flat);
  const Tensor sums =
      scattered(kGatherGradient, reshape(gradients[0], flat), index, Dims{planes, shape[2] * shape[3]}, 1);
  return {reshape(sums, shape)};
}

// ---- the gradient of avg_pool2d; its own gradient is the mean of each window ----------------------------------------

Tensor mean_of_windows(const Tensor& g, ops::Attributes attributes) {
  std::erase_if(attributes, [](const auto& attribute) { return attribute.first == "shape"; });
  return call(ops::kAvgPool2d, {g}, attributes);
}

Tensors spread_forward(std::span<const Tensor> inputs, const ops::Attributes& attributes, ops::Saved* saved) {
  ops::Saved of_pool;
  of_pool.shapes = {ops::get_dims(attributes, "shape")};
  of_pool.attributes = attributes;
  if (saved != nullptr) saved->attributes = attributes;
  return {ops::kAvgPool2d.backward(of_pool, {inputs[0]})[0]};
}

Tensors spread_backward(const ops::Saved& saved, Tensors gradients) {
  if (gradients[0]) gradients[0] = mean_of_windows(gradients[0], saved.attributes);
  return gradients;
}

Tensors spread_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {mean_of_windows(gradients[0], step.saved().attributes)};
}

constexpr ops::Op kAvgPool2dGradient{.signature =
                                         "spread(tensor g, int64[] shape, int64[] kernel, int64[] stride = kernel, "
                                         "int64[] padding = [0,0], bool count_include_pad = true) -> tensor",
                                     .forward = spread_forward,
                                     .backward = spread_backward,
                                     .name = "gradient of avg_pool2d"};

Tensors avg_pool2d_gradients(const RecordedStep& step, const Tensors& gradients) {
  ops::Attributes attributes = make_attributes({{"shape", step.saved().shapes[0]}});
  attributes.insert(attributes.end(), step.saved().attributes.begin(), step.saved().attributes.end());
  std::sort(attributes.begin(), attributes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return {call(kAvgPool2dGradient, {gradients[0]}, attributes)};
}

// ---- the gradient of adaptive_avg_pool2d, likewise ------------------------------------------------------------------

// The attribute `shape` is that of the images.
Tensor mean_of_adaptive_windows(const Tensor& g, const ops::Attributes& attributes) {
  return call(ops::kAdaptiveAvgPool2d, {g},
              make_attributes({{"output_size", ops::get_dims(attributes, "output_size")}}));
}

Tensors adaptive_spread_forward(std::span<const Tensor> inputs, const ops::Attributes& attributes, ops::Saved* saved) {
  ops::Saved of_pool;
  of_pool.shapes = {ops::get_dims(attributes, "shape"), ops::get_dims(attributes, "output_size")};
  if (saved != nullptr) saved->attributes = attributes;
  return {ops::kAdaptiveAvgPool2d.backward(of_pool, {inputs[0]})[0]};
}

Tensors adaptive_spread_backward(const ops::Saved& saved, Tensors gradients) {
  if (gradients[0]) gradients[0] = mean_of_adaptive_windows(gradients[0], saved.attributes);
  return gradients;
}

Tensors adaptive_spread_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {mean_of_adaptive_windows(gradients[0], step.saved().attributes)};
}

constexpr ops::Op kAdaptiveAvgPool2dGradient{
    .signature = "adaptive_spread(tensor g, int64[] shape, int64[] output_size) -> tensor",
    .forward = adaptive_spread_forward,
    .backward = adaptive_spread_backward,
    .name = "gradient of adaptive_avg_pool2d"};

Tensors adaptive_avg_pool2d_gradients(const RecordedStep& step, const Tensors& gradients) {
  const std::vector<Dims>& shapes = step.saved().shapes;
  return {call(kAdaptiveAvgPool2dGradient, {gradients[0]},
               make_attributes({{"output_size", shapes[1]}, {"shape", shapes[0]}}))};
}

// ---- the gradient of interpolate, likewise --------------------------------------------------------------------------

// The attribute `shape` is that of the images.
ops::Attributes without_image_shape(ops::Attributes attributes) {
  std::erase_if(attributes, [](const auto& item) { return item.first == "shape"; });
  return attributes;
}

Tensors resized_back_forward(std::span<const Tensor> inputs, const ops::Attributes& attributes, ops::Saved* saved) {
  ops::Saved of_images;
  of_images.shapes = {ops::get_dims(attributes, "shape")};
  of_images.attributes = without_image_shape(attributes);
  if (saved != nullptr) saved->attributes = of_images.attributes;
  return {ops::kInterpolate.backward(of_images, {inputs[0]})[0]};
}

Tensors resized_back_backward(const ops::Saved& saved, Tensors gradients) {
  if (gradients[0]) gradients[0] = call(ops::kInterpolate, {gradients[0]}, saved.attributes);
  return gradients;
}

Tensors resized_back_gradients(const RecordedStep& step, const Tensors& gradients) {
  return {call(ops::kInterpolate, {gradients[0]}, step.saved().attributes)};
}

constexpr ops::Op kInterpolateGradient{.signature =
                                           "resized_back(tensor g, int64[] size, text mode = nearest, bool "
                                           "align_corners = false, int64[] shape) -> tensor",
                                       .forward = resized_back_forward,
                                       .backward = resized_back_backward,
                                       .name = "gradient of interpolate"};

Tensors interpolate_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  return {call(kInterpolateGradient, {gradients[0]},
               with_attribute(saved.attributes, "shape", dims_value(saved.shapes[0])))};
}

constexpr RecordedOp kIndexing[] = {
    {&ops::kGather, choice_gradient<kGatherGradient>},
    {&ops::kIndexSelect, choice_gradient<kIndexSelectGradient>},
    {&kGatherGradient, scatter_gradients<ops::kGather>},
    {&kIndexSelectGradient, scatter_gradients<ops::kIndexSelect>},
    {&ops::kEmbedding, embedding_gradients},
    {&ops::kMaxPool2d, max_pool2d_gradients},
    {&ops::kAvgPool2d, avg_pool2d_gradients},
    {&kAvgPool2dGradient, spread_gradients},
    {&ops::kAdaptiveAvgPool2d, adaptive_avg_pool2d_gradients},
    {&kAdaptiveAvgPool2dGradient, adaptive_spread_gradients},
    {&ops::kInterpolate, interpolate_gradients},
    {&kInterpolateGradient, resized_back_gradients},
    {&ops::kTopk, ordered_gradients},
    {&ops::kSort, ordered_gradients},
    {&ops::kMinWithIndices, extreme_gradients},
    {&ops::kMaxWithIndices, extreme_gradients},
    {&ops::kIndexAdd, index_add_gradients},
    {&ops::kScatterAdd, scatter_add_gradients},
};

}  // namespace

std::span<const RecordedOp> indexing_ops() { return kIndexing; }

}  // namespace distag::autograd::recorded
