#pragma once

#include "ops/window.h"
#include "tensor/tensor.h"

namespace distag::ops {

// The sizes of a conv2d. Throws INVALID_ARGUMENT when they do not match.
struct Convolution {
  Window window;
  int64_t images = 0;
  int64_t groups = 1;
  int64_t in_channels = 0;   // channels of one group
  int64_t out_channels = 0;  // channels of one group
  int64_t kernel_size = 0;   // in_channels * kernel rows * kernel columns

  Convolution(const Tensor& x, const Tensor& weight, const Attributes& attributes);
  int64_t in_size() const { return in_channels * window.rows.size * window.columns.size; }
  int64_t out_size() const { return out_channels * window.positions(); }
  // Whether an image equals its matrix of columns.
  bool is_pointwise() const {
    auto is_plain = [](const Axis& axis) { return axis.kernel == 1 && axis.stride == 1 && axis.padding == 0; };
    return is_plain(window.rows) && is_plain(window.columns);
  }
};

// Saves the inputs of the backwards of convolutions: x and weight in the result's dtype, and the dtypes of all inputs.
void save_convolution(Saved& saved, Inputs inputs, const Tensor& x, const Tensor& weight, const Attributes& attributes);
// Converts each gradient to the dtype of its input.
Tensors in_dtypes(Tensors gradients, const std::vector<Dtype>& dtypes);

}  // namespace distag::ops
