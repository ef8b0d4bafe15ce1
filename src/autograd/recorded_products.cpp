// Recorded backwards of matmul, linear, conv2d, conv1d, conv_transpose2d, scaled_dot_product_attention.
#include <cmath>

#include "autograd/recorded_step.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/views.h"

namespace distag::autograd::recorded {
namespace {

Tensor swapped(const Tensor& x) { return transpose(x, x.rank() - 2, x.rank() - 1); }

// x [.., size] as a matrix.
Tensor as_rows(const Tensor& x, int64_t size) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < x.rank(); ++i) rows *= x.shape()[i];
  return reshape(x, Dims{rows, size});
}

// The shape of a side with at least two dims: a 1-d one is a row on the left, a column on the right.
Dims left_shape(const Dims& shape) { return shape.size() == 1 ? Dims{1, shape[0]} : shape; }
Dims right_shape(const Dims& shape) { return shape.size() == 1 ? Dims{shape[0], 1} : shape; }

// da = g b^T, db = a^T g, summed over the batches that were broadcast.
Tensors matmul_gradients(const RecordedStep& step, const Tensors& gradients) {
  Tensors result(2);
  const ops::Saved& saved = step.saved();
  const Dims left = left_shape(saved.shapes[0]);
  const Dims right = right_shape(saved.shapes[1]);
  Tensor g = reshape(gradients[0], saved.shapes[2]);
  if (step.needs(0)) {
    const Tensor b = reshape(step.input(1), right);
    result[0] = reshape(sum_to(matmul(g, swapped(b)), left, saved.dtypes[0]), saved.shapes[0]);
  }
  if (step.needs(1)) {
    Tensor a = reshape(step.input(0), left);
    if (right.size() == 2 && left.size() > 2) {
      // All batches share b: they are more rows of one product.
      a = as_rows(a, right[0]);
      g = as_rows(g, right[1]);
    }
    result[1] = reshape(sum_to(matmul(swapped(a), g), right, saved.dtypes[1]), saved.shapes[1]);
  }
  return result;
}

Tensors linear_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  Tensors result(saved.dtypes.size());
  const Dims& weight_shape = saved.shapes[1];
  const Tensor g = as_rows(gradients[0], weight_shape[0]);
  if (step.needs(0)) {
    result[0] = cast(reshape(matmul(g, step.input(1)), saved.shapes[0]), saved.dtypes[0]);
  }
  if (step.needs(1)) {
    const Tensor x = step.input(0, ops::with_shape(saved.tensors[0], saved.shapes[0]));  // kept as a matrix
    result[1] = cast(matmul(transpose(g, 0, 1), as_rows(x, weight_shape[1])), saved.dtypes[1]);
  }
  if (result.size() > 2 && step.needs(2)) result[2] = sum_to(g, Dims{weight_shape[0]}, saved.dtypes[2]);
  return result;
}

// ---- conv2d: with the gradients of its image and of its weight, each linear in both of its inputs -------------------

// The gradient of input 0, the image, or of input 1, the weight. `other` is the one of these on which it depends.
Tensor convolution_gradient(size_t input, const Tensor& g, const Tensor& other, const ops::Attributes& attributes) {
  const Dims shape = ops::get_dims(attributes, "shape");
  const Tensor stand_in = ops::broadcast_to(number_like(g, 0.0), shape);  // only its shape and dtype count
  ops::Saved saved;
  saved.needed = uint64_t{1} << input;
  saved.attributes = attributes;
  saved.dtypes = {g.dtype(), g.dtype()};
  saved.tensors = input == 0 ? Tensors{stand_in, other.contiguous()} : Tensors{other.contiguous(), stand_in};
  return ops::kConv2d.backward(saved, {g})[input];
}

template <size_t input>
Tensors convolution_gradient_forward(std::span<const Tensor> inputs, const ops::Attributes& attributes,
                                     ops::Saved* saved) {
  if (saved != nullptr) {
    saved->tensors = {inputs[0].snapshot(), inputs[1].snapshot()};
    saved->attributes = attributes;
  }
  return {convolution_gradient(input, inputs[0], inputs[1], attributes)};
}

template <size_t input>
Tensors convolution_gradient_backward(const ops::Saved& saved, Tensors gradients);

constexpr ops::Op kConvolutionImageGradient{
    .signature =
        "image_gradient(tensor g, tensor weight, int64[] stride = [1,1], int64[] padding = [0,0], "
        "int64[] dilation = [1,1], int64 groups = 1, int64[] shape) -> tensor",
    .forward = convolution_gradient_forward<0>,
    .backward = convolution_gradient_backward<0>,
    .name = "image gradient of conv2d"};

constexpr ops::Op kConvolutionWeightGradient{
    .signature =
        "weight_gradient(tensor g, tensor x, int64[] stride = [1,1], int64[] padding = [0,0], "
        "int64[] dilation = [1,1], int64 groups = 1, int64[] shape) -> tensor",
    .forward = convolution_gradient_forward<1>,
    .backward = convolution_gradient_backward<1>,
    .name = "weight gradient of conv2d"};

// The settings of conv2d alone.
ops::Attributes without_shape(ops::Attributes attributes) {
  std::erase_if(attributes, [](const auto& item) { return item.first == "shape"; });
  return attributes;
}

Tensor image_gradient(const Tensor& g, const Tensor& weight, const ops::Attributes& attributes, const Dims& shape) {
  return call(kConvolutionImageGradient, {g, weight}, with_attribute(attributes, "shape", dims_value(shape)));
}

Tensor weight_gradient(const Tensor& g, const Tensor& x, const ops::Attributes& attributes, const Dims& shape) {
  return call(kConvolutionWeightGradient, {g, x}, with_attribute(attributes, "shape", dims_value(shape)));
}

Tensor convolved(const Tensor& x, const Tensor& weight, const ops::Attributes& attributes) {
  return call(ops::kConv2d, {x, weight}, attributes);
}

// The image's gradient depends on g [n, out, ..] and on the weight: the gradients of both.
Tensors image_gradient_gradients(const ops::Saved& saved, const Tensor& x, const Tensor& g, const Tensor& weight) {
  Tensors result(2);
  const ops::Attributes attributes = without_shape(saved.attributes);
  if (saved.needs(0)) result[0] = convolved(x, weight, attributes);
  if (saved.needs(1)) result[1] = weight_gradient(g, x, attributes, weight.shape());
  return result;
}

// The weight's gradient depends on g and on the image: the gradients of both.
Tensors weight_gradient_gradients(const ops::Saved& saved, const Tensor& weight, const Tensor& g, const Tensor& x) {
  Tensors result(2);
  const ops::Attributes attributes = without_shape(saved.attributes);
  if (saved.needs(0)) result[0] = convolved(x, weight, attributes);
  if (saved.needs(1)) result[1] = image_gradient(g, weight, attributes, x.shape());
  return result;
}

template <size_t input>
Tensors convolution_gradient_backward(const ops::Saved& saved, Tensors gradients) {
  if (!gradients[0]) return Tensors(2);
  constexpr auto gradients_of = input == 0 ? image_gradient_gradients : weight_gradient_gradients;
  return gradients_of(saved, gradients[0], saved.tensors[0], saved.tensors[1]);
}

template <size_t input>
Tensors convolution_gradient_gradients(const RecordedStep& step, const Tensors& gradients) {
  constexpr auto gradients_of = input == 0 ? image_gradient_gradients : weight_gradient_gradients;
  return gradients_of(step.saved(), gradients[0], step.input(0), step.input(1));
}

Tensors conv2d_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  Tensors result(saved.dtypes.size());
  const Tensor& g = gradients[0];
  const Tensor x = step.input(0);
  const Tensor weight = step.input(1);
  if (step.needs(0)) result[0] = image_gradient(g, weight, saved.attributes, x.shape());
  if (step.needs(1)) result[1] = weight_gradient(g, x, saved.attributes, weight.shape());
  if (result.size() > 2 && step.needs(2)) {
    result[2] = reshape(sum_along(g, Dims{0, 2, 3}), Dims{weight.shape()[0]});
  }
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i]) result[i] = cast(result[i], saved.dtypes[i]);
  }
  return result;
}

// Forward kept its inputs as images of one row.
Tensors conv1d_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  Tensors result(saved.dtypes.size());
  const auto without_rows = [](const Dims& shape) { return Dims{shape[0], shape[1], shape[3]}; };
  const auto image_of = [&](size_t i) {
    const Dims& shape = saved.tensors[i].shape();
    return reshape(step.input(i, ops::with_shape(saved.tensors[i], without_rows(shape))), shape);
  };
  const Dims& of_g = gradients[0].shape();
  const Tensor g = reshape(gradients[0], Dims{of_g[0], of_g[1], 1, of_g[2]});
  const Tensor x = image_of(0);
  const Tensor weight = image_of(1);
  if (step.needs(0)) {
    result[0] = reshape(image_gradient(g, weight, saved.attributes, x.shape()), without_rows(x.shape()));
  }
  if (step.needs(1)) {
    result[1] = reshape(weight_gradient(g, x, saved.attributes, weight.shape()), without_rows(weight.shape()));
  }
  if (result.size() > 2 && step.needs(2)) result[2] = reshape(sum_along(g, Dims{0, 2, 3}), Dims{of_g[1]});
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i]) result[i] = cast(result[i], saved.dtypes[i]);
  }
  return result;
}

Tensors conv_transpose2d_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  Tensors result(saved.dtypes.size());
  const Tensor& g = gradients[0];
  const Tensor x = step.input(0);
  const Tensor weight = step.input(1);
  if (step.needs(0)) result[0] = convolved(g, weight, saved.attributes);
  if (step.needs(1)) result[1] = weight_gradient(x, g, saved.attributes, weight.shape());
  if (result.size() > 2 && step.needs(2)) result[2] = reshape(sum_along(g, Dims{0, 2, 3}), Dims{g.shape()[1]});
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i]) result[i] = cast(result[i], saved.dtypes[i]);
  }
  return result;
}

// ---- scaled_dot_product_attention -----------------------------------------------------------------------------------

// Computes the shares again, with their history.
Tensor attention_shares(const RecordedStep& step, const Tensor& q, const Tensor& k, double scale) {
  const Tensors& kept = step.saved().tensors;
  Tensor scores = times(matmul(q, swapped(k)), scale);
  if (kept[3] && kept[3].dtype() != Dtype::kBool) scores = add(scores, step.input(3));
  const Tensor& allowed = kept[5];
  if (allowed) scores = where(allowed, scores, kept[6]);
  const Tensor shares = call(ops::kSoftmax, {scores});
  return allowed ? where(allowed, shares, number_like(shares, 0.0)) : shares;
}

Tensors attention_gradients(const RecordedStep& step, const Tensors& gradients) {
  const ops::Saved& saved = step.saved();
  Tensors result(static_cast<size_t>(saved.shapes[0][0]));
  const Tensor& g = gradients[0];
  const Tensor q = step.input(0);
  const Tensor k = step.input(1);
  const Tensor v = step.input(2);
  const auto width = static_cast<double>(q.shape().back());
  double scale = ops::get_float(saved.attributes, "scale", 0.0);
  if (scale == 0) scale = width == 0 ? 1.0 : 1.0 / std::sqrt(width);
  const Tensor shares = attention_shares(step, q, k, scale);
  const auto reduced_to = [](const Tensor& like, const Tensor& x) { return sum_to(x, like.shape(), like.dtype()); };
  if (step.needs(2)) result[2] = reduced_to(v, matmul(swapped(shares), g));
  const Tensor of_shares = reduced_to(shares, matmul(g, swapped(v)));
  const Dims last{static_cast<int64_t>(shares.rank()) - 1};
  const Tensor of_scores = mul(shares, sub(of_shares, sum_along(mul(of_shares, shares), last)));
  if (result.size() > 3 && step.needs(3)) result[3] = reduced_to(saved.tensors[3], of_scores);
  if (step.needs(0)) result[0] = times(reduced_to(q, matmul(of_scores, k)), scale);
  if (step.needs(1)) result[1] = times(reduced_to(k, matmul(swapped(of_scores), q)), scale);
  return result;
}

constexpr RecordedOp kProducts[] = {
    {&ops::kMatmul, matmul_gradients},
    {&ops::kLinear, linear_gradients},
    {&ops::kConv2d, conv2d_gradients},
    {&ops::kConv1d, conv1d_gradients},
    {&ops::kConvTranspose2d, conv_transpose2d_gradients},
    {&ops::kScaledDotProductAttention, attention_gradients},
    {&kConvolutionImageGradient, convolution_gradient_gradients<0>},
    {&kConvolutionWeightGradient, convolution_gradient_gradients<1>},
};

}  // namespace

std::span<const RecordedOp> product_ops() { return kProducts; }

}  // namespace distag::autograd::recorded
