// conv1d and conv_transpose2d by the kernels of conv2d: images of one row, and the image gradient as forward.
#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/convolution.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/views.h"
#include "tensor/limits.h"

namespace distag::ops {
namespace {

Dtype checked_dtype(const char* op, Inputs inputs) {
  const Dtype dtype = promote(inputs[0].dtype(), inputs[1].dtype());
  if (!is_floating(dtype)) require_floating(op, inputs[0]);
  return dtype;
}

void check_bias(const char* op, Inputs inputs, int64_t channels) {
  if (inputs.size() < 3 || !inputs[2]) return;
  require(inputs[2].shape() == Dims{channels}, "{}: bias {} does not fit weight {}", op, inputs[2], inputs[1]);
}

// ---- conv1d ---------------------------------------------------------------------------------------------------------

// The settings of conv2d for images of one row.
Attributes settings_of_row(const Attributes& attributes) {
  const auto number = [&attributes](const char* name, int64_t fallback, int64_t least) {
    return checked_setting("conv1d", name, get_dims(attributes, name, Dims{fallback}), 1, least)[0];
  };
  return make_attributes({{"dilation", Dims{1, number("dilation", 1, 1)}},
                          {"groups", get_int(attributes, "groups", 1)},
                          {"padding", Dims{0, number("padding", 0, 0)}},
                          {"stride", Dims{1, number("stride", 1, 1)}}});
}

void check_rows(const Tensor& x, const Tensor& weight, const Attributes& of_row) {
  const int64_t groups = get_int(of_row, "groups", 1);
  const bool fits = x.rank() == 3 && weight.rank() == 3 && groups >= 1 &&
                    groups <= std::max<int64_t>(x.shape()[1], 1) && x.shape()[1] % groups == 0 &&
                    x.shape()[1] / groups == weight.shape()[1] && weight.shape()[0] % groups == 0;
  require(fits, "conv1d: x {} and weight {} with {} groups do not fit: [n, c, l] and [out, c / groups, k] do", x,
          weight, groups);
  const int64_t kernel = checked_setting("conv1d", "kernel", Dims{weight.shape()[2]}, 1, 1)[0];
  const int64_t dilation = get_dims(of_row, "dilation")[1];
  const int64_t padding = get_dims(of_row, "padding")[1];
  require(dilation * (kernel - 1) < joined_size("conv1d", x.shape()[2], 2 * padding),
          "conv1d: a window of {} with dilation {} does not fit into {} with padding {}", kernel, dilation,
          x.shape()[2], padding);
}

// Reshapes [a, b, c] to [a, b, 1, c]; as_row() reverses it.
Tensor as_image(const Tensor& x) { return with_shape(x, Dims{x.shape()[0], x.shape()[1], 1, x.shape()[2]}); }
Tensor as_row(const Tensor& image) {
  return with_shape(image, Dims{image.shape()[0], image.shape()[1], image.shape()[3]});
}

}  // namespace

struct Conv1dOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    checked_dtype("conv1d", inputs);
    const Attributes of_row = settings_of_row(attributes);
    check_rows(inputs[0], inputs[1], of_row);
    check_bias("conv1d", inputs, inputs[1].shape()[0]);
    Tensors images{as_image(inputs[0]), as_image(inputs[1])};
    if (inputs.size() > 2) images.push_back(inputs[2]);
    return as_row(kConv2d.forward(images, of_row, saved)[0]);
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result = kConv2d.backward(saved, {as_image(g)});
    for (size_t i = 0; i < 2; ++i) {
      if (result[i]) result[i] = as_row(result[i]);
    }
    return result;
  }
};
constexpr Op kConv1d = make_op<Conv1dOp>(
    "conv1d(tensor x, tensor weight, tensor? bias, int64[] stride = [1], int64[] padding = [0], int64[] dilation = "
    "[1], int64 groups = 1) -> tensor",
    "x [n, c, l] convolved with weight [out, c / groups, k], plus bias [out].", kSeparable);

// ---- conv_transpose2d -----------------------------------------------------------------------------------------------

struct ConvTranspose2dOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Dtype dtype = checked_dtype(kTransposed, inputs);
    const Attributes settings = settings_of_convolution(attributes);
    const Dims more =
        checked_setting(kTransposed, "output_padding", get_dims(attributes, "output_padding", Dims{0, 0}), 2, 0);
    const Dims shape = transposed_shape(inputs[0], inputs[1], settings, more);
    check_bias(kTransposed, inputs, shape[1]);
    const Tensor x = as_dtype(inputs[0], dtype).contiguous();
    const Tensor weight = as_dtype(inputs[1], dtype).contiguous();
    Tensor y = gradient_of_convolution(0, x, weight, shape, settings);
    if (inputs.size() > 2 && inputs[2]) {
      y = combine(kTransposed, kSumOf, y, with_shape(as_dtype(inputs[2], dtype).contiguous(), Dims{shape[1], 1, 1}));
    }
    if (saved != nullptr) save_convolution(*saved, inputs, x, weight, settings);
    return y;
  }

  // The gradient of x is a conv2d of g; that of the weight is the gradient of the weight in a conv2d of g.
  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(saved.dtypes.size());
    g = g.contiguous();
    const Tensor& x = saved.tensors[0];
    const Tensor& weight = saved.tensors[1];
    if (saved.needs(0)) result[0] = kConv2d.forward(Tensors{g, weight}, saved.attributes, nullptr)[0];
    if (saved.needs(1)) result[1] = gradient_of_convolution(1, x, g, weight.shape(), saved.attributes);
    if (result.size() > 2 && saved.needs(2)) result[2] = sum_over(g, DimSet(0b1101), Dims{g.shape()[1]});
    return in_dtypes(std::move(result), saved.dtypes);
  }

 private:
  static constexpr const char* kTransposed = "conv_transpose2d";

  // The settings of the conv2d whose image has the shape of the result.
  static Attributes settings_of_convolution(const Attributes& attributes) {
    const auto pair = [&attributes](const char* name, int64_t fallback, int64_t least) {
      return checked_setting(kTransposed, name, get_dims(attributes, name, Dims{fallback, fallback}), 2, least);
    };
    return make_attributes({{"dilation", pair("dilation", 1, 1)},
                            {"groups", get_int(attributes, "groups", 1)},
                            {"padding", pair("padding", 0, 0)},
                            {"stride", pair("stride", 1, 1)}});
  }

  // (size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1, for rows or columns.
  static int64_t transposed_size(const Tensor& x, const Tensor& weight, const Attributes& settings, const Dims& more,
                                 size_t side) {
    const Dims strides = get_dims(settings, "stride");
    const int64_t stride = strides[side];
    const int64_t size = x.shape()[2 + side];
    require(more[side] < stride, "{}: output_padding {} must be below the stride {}", kTransposed, more, strides);
    checked_setting(kTransposed, "sides of x", Dims{size}, 1, 1);
    const int64_t reach = get_dims(settings, "dilation")[side] * (weight.shape()[2 + side] - 1);
    return (size - 1) * stride - 2 * get_dims(settings, "padding")[side] + reach + more[side] + 1;
  }

  static Dims transposed_shape(const Tensor& x, const Tensor& weight, const Attributes& settings, const Dims& more) {
    const int64_t groups = get_int(settings, "groups", 1);
    const bool fits = x.rank() == 4 && weight.rank() == 4 && groups >= 1 && x.shape()[1] == weight.shape()[0] &&
                      groups <= std::max<int64_t>(x.shape()[1], 1) && x.shape()[1] % groups == 0 &&
                      weight.shape()[1] <= INT64_MAX / groups;
    require(fits, "{}: x {} and weight {} with {} groups do not fit: [n, c, h, w] and [c, out / groups, kh, kw] do",
            kTransposed, x, weight, groups);
    checked_setting(kTransposed, "kernel", Dims{weight.shape()[2], weight.shape()[3]}, 2, 1);
    const Dims shape{x.shape()[0], weight.shape()[1] * groups, transposed_size(x, weight, settings, more, 0),
                     transposed_size(x, weight, settings, more, 1)};
    if (shape[2] >= 1 && shape[3] >= 1 && shape[2] <= kMostPixels && shape[3] <= kMostPixels / shape[2]) {
      return shape;
    }
    fail(Status::kInvalidArgument, "{}: an image of {} rows and {} columns has not from 1 to {} elements", kTransposed,
         shape[2], shape[3], kMostPixels);
  }

  // A gradient of conv2d: of its image (input 0), where `known` is the weight, or of its weight (input 1), where
  // `known` is the image. `g` is the gradient of its output, `shape` that of the input.
  static Tensor gradient_of_convolution(size_t input, const Tensor& g, const Tensor& known, const Dims& shape,
                                        const Attributes& settings) {
    const Tensor unknown = broadcast_to(Tensor::scalar(g.dtype(), 0.0), shape);
    Saved of_convolution;
    of_convolution.needed = uint64_t{1} << input;
    of_convolution.attributes = settings;
    of_convolution.dtypes = {g.dtype(), g.dtype()};
    of_convolution.tensors = input == 0 ? Tensors{unknown, known} : Tensors{known, unknown};
    return kConv2d.backward(of_convolution, {g})[input];
  }
};
constexpr Op kConvTranspose2d = make_op<ConvTranspose2dOp>(
    "conv_transpose2d(tensor x, tensor weight, tensor? bias, int64[] stride = [1,1], int64[] padding = [0,0], int64[] "
    "output_padding = [0,0], int64[] dilation = [1,1], int64 groups = 1) -> tensor",
    "The gradient of the image of conv2d, from x [n, c, h, w] by weight [c, out / groups, kh, kw], plus bias [out]; "
    "output_padding, below stride, adds last rows and columns.",
    kSeparable);

}  // namespace distag::ops
