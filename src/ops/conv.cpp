// conv2d as a product of matrices per image and group: windows of the image become columns.
#include <cstring>

#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/convolution.h"
#include "ops/direct_convolution.h"
#include "ops/dispatch.h"
#include "ops/gemm.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/views.h"
#include "ops/window.h"

namespace distag::ops {
namespace {

// The most products that are added one after the other in their dtype, as in a BLAS.
constexpr int64_t kMostSummedPlainly = 128;

}  // namespace

Convolution::Convolution(const Tensor& x, const Tensor& weight, const Attributes& attributes) {
  groups = get_int(attributes, "groups", 1);
  bool fits = x.rank() == 4 && weight.rank() == 4 && groups >= 1 && groups <= std::max<int64_t>(x.shape()[1], 1) &&
              x.shape()[1] == weight.shape()[1] * groups && weight.shape()[0] % groups == 0;
  require(fits, "conv2d: x {} and weight {} with {} groups do not fit: [n, c, h, w] and [out, c / groups, kh, kw] do",
          x, weight, groups);
  window = make_window("conv2d", attributes, Dims{x.shape()[2], x.shape()[3]},
                       Dims{weight.shape()[2], weight.shape()[3]}, Dims{1, 1});
  images = x.shape()[0];
  in_channels = weight.shape()[1];
  out_channels = weight.shape()[0] / groups;
  kernel_size = in_channels * weight.shape()[2] * weight.shape()[3];
}

void save_convolution(Saved& saved, Inputs inputs, const Tensor& x, const Tensor& weight,
                      const Attributes& attributes) {
  saved.tensors = {x.snapshot(), weight.snapshot()};
  saved.attributes = attributes;
  for (const Tensor& input : inputs) saved.dtypes.push_back(input ? input.dtype() : x.dtype());
}

Tensors in_dtypes(Tensors gradients, const std::vector<Dtype>& dtypes) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i]) gradients[i] = as_dtype(gradients[i], dtypes[i]);
  }
  return gradients;
}

struct Conv2dOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    Dtype dtype = promote(inputs[0].dtype(), inputs[1].dtype());
    Tensor x = as_dtype(inputs[0], dtype).contiguous();
    Tensor weight = as_dtype(inputs[1], dtype).contiguous();
    Tensor bias = inputs.size() > 2 && inputs[2] ? as_dtype(inputs[2], dtype).contiguous() : Tensor();
    Convolution conv(x, weight, attributes);
    require(!bias || bias.shape() == Dims{weight.shape()[0]}, "conv2d: bias {} does not fit weight {}", bias, weight);
    Tensor y =
        Tensor::empty(dtype, Dims{conv.images, weight.shape()[0], conv.window.rows.out, conv.window.columns.out});
    dispatch_floating("conv2d", dtype, [&]<typename T>(T) {
      if (y.count() > 0 && conv.kernel_size > 0) {
        convolve<T>(y, x, weight, bias, conv);
      } else {
        y = bias ? broadcast_to(bias.view(Dims{bias.count(), 1, 1}, Dims{1, 1, 1}, bias.offset()), y.shape()).clone()
                 : zero_tensor(dtype, y.shape());
      }
    });
    if (saved != nullptr) save_convolution(*saved, inputs, x, weight, attributes);
    return y;
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(saved.dtypes.size());
    const Tensor& x = saved.tensors[0];
    const Tensor& weight = saved.tensors[1];
    Convolution conv(x, weight, saved.attributes);
    g = g.contiguous();
    dispatch_floating("conv2d", g.dtype(), [&]<typename T>(T) {
      if (saved.needs(0)) result[0] = gradient_of_image(g, x, weight, conv);
      if (saved.needs(1)) result[1] = gradient_of_weight_in_parts<T>(g, x, weight, conv);
    });
    if (result.size() > 2 && saved.needs(2)) {
      DimSet all_but_channels(0b1101);
      result[2] = sum_over(g, all_but_channels, Dims{weight.shape()[0]});
    }
    return in_dtypes(std::move(result), saved.dtypes);
  }

 private:
  // Calls visit(column row, image row, first, last) for the stretch of each output row in which one element of the
  // kernel is inside the image. `image row` is the offset for which position o is at o * stride.
  template <typename Visit>
  static void for_each_stretch(const Convolution& conv, Visit visit) {
    const Axis& rows = conv.window.rows;
    const Axis& columns = conv.window.columns;
    int64_t line = 0;
    for (int64_t c = 0; c < conv.in_channels; ++c) {
      for (int64_t i = 0; i < rows.kernel; ++i) {
        for (int64_t j = 0; j < columns.kernel; ++j, ++line) {
          int64_t first = columns.first_inside(j);
          int64_t last = std::max(first, columns.last_inside(j));
          for (int64_t o = 0; o < rows.out; ++o) {
            int64_t row = rows.position(o, i);
            bool is_inside = row >= 0 && row < rows.size;
            int64_t image_offset = (c * rows.size + row) * columns.size + columns.position(0, j);
            visit(line * conv.window.positions() + o * columns.out, image_offset, is_inside ? first : 0,
                  is_inside ? last : 0);
          }
        }
      }
    }
  }

  // [kernel_size, positions]
  template <typename T>
  static void image_to_columns(T* columns, const T* image, const Convolution& conv) {
    int64_t stride = conv.window.columns.stride;
    int64_t width = conv.window.columns.out;
    for_each_stretch(conv, [=](int64_t to, int64_t from, int64_t first, int64_t last) {
      std::fill_n(columns + to, first, T(0));
      if (last > first && stride == 1) {
        std::memcpy(columns + to + first, image + (from + first), static_cast<size_t>(last - first) * sizeof(T));
      } else {
        for (int64_t o = first; o < last; ++o) columns[to + o] = image[from + o * stride];
      }
      std::fill_n(columns + to + last, width - last, T(0));
    });
  }

  template <typename Total, typename T>
  static void add_columns_to_image(Total* image, const T* columns, const Convolution& conv) {
    int64_t stride = conv.window.columns.stride;
    for_each_stretch(conv, [=](int64_t from, int64_t to, int64_t first, int64_t last) {
      for (int64_t o = first; o < last; ++o) image[to + o * stride] += static_cast<Total>(columns[from + o]);
    });
  }

  static Matrix row_major(int64_t rows, int64_t columns) {
    return {rows, columns, false, std::max<int64_t>(columns, 1)};
  }
  // The transpose of a row-major [columns, rows].
  static Matrix column_major(int64_t rows, int64_t columns) {
    return {rows, columns, true, std::max<int64_t>(rows, 1)};
  }

  // Calls visit(image group index, weight group index) for each group of each image.
  template <typename Visit>
  static void for_each_group(const Convolution& conv, Visit visit) {
    for (int64_t n = 0; n < conv.images; ++n) {
      for (int64_t g = 0; g < conv.groups; ++g) visit(n * conv.groups + g, g);
    }
  }

  template <typename T>
  static void convolve_columns(Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                               const Convolution& conv) {
    Tensor columns =
        Tensor::empty(x.dtype(), Dims{conv.is_pointwise() ? 0 : conv.kernel_size, conv.window.positions()});
    T* column_data = columns.mutable_data_as<T>();
    T* out = y.mutable_data_as<T>();
    for_each_group(conv, [&](int64_t i, int64_t g) {
      const T* image = x.data_as<T>() + i * conv.in_size();
      T* result = out + i * conv.out_size();
      if (!conv.is_pointwise()) image_to_columns(column_data, image, conv);
      if (bias) {
        for (int64_t c = 0; c < conv.out_channels; ++c) {
          std::fill_n(result + c * conv.window.positions(), conv.window.positions(),
                      bias.data_as<T>()[g * conv.out_channels + c]);
        }
      }
      multiply<T>(result, weight.data_as<T>() + g * conv.out_channels * conv.kernel_size,
                  row_major(conv.out_channels, conv.kernel_size), conv.is_pointwise() ? image : column_data,
                  row_major(conv.kernel_size, conv.window.positions()), bias ? T(1) : T(0));
    });
  }

  template <typename T>
  static void convolve(Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias, const Convolution& conv) {
    auto* way = suits_direct_convolution<T>(conv) ? &convolve_directly<T> : &convolve_columns<T>;
    way(y, x, weight, bias, conv);
  }

  template <typename T, typename Total>
  static void add_gradients_of_image(Total* images, const Tensor& g, const Tensor& weight, const Convolution& conv) {
    Tensor columns = Tensor::empty(g.dtype(), Dims{conv.kernel_size, conv.window.positions()});
    T* column_data = columns.mutable_data_as<T>();
    for_each_group(conv, [&](int64_t i, int64_t group) {
      Total* image = images + i * conv.in_size();
      T* product = column_data;
      if constexpr (std::is_same_v<T, Total>) product = conv.is_pointwise() ? image : column_data;
      multiply<T>(product, weight.data_as<T>() + group * conv.out_channels * conv.kernel_size,
                  column_major(conv.kernel_size, conv.out_channels), g.data_as<T>() + i * conv.out_size(),
                  row_major(conv.out_channels, conv.window.positions()), T(0));
      if (product == column_data) add_columns_to_image(image, column_data, conv);
    });
  }

  static Tensor gradient_of_image(const Tensor& g, const Tensor& x, const Tensor& weight, const Convolution& conv) {
    const int64_t terms = conv.window.rows.overlap() * conv.window.columns.overlap();
    Tensor sums = zero_tensor(terms > kMostSummedPlainly ? Dtype::kFloat64 : x.dtype(), x.shape());
    if (g.count() == 0 || x.count() == 0) return as_dtype(sums, x.dtype());
    dispatch_sum("conv2d", x.dtype(), sums.dtype(), [&]<typename T, typename Total>(T, Total) {
      add_gradients_of_image<T, Total>(sums.mutable_data_as<Total>(), g, weight, conv);
    });
    return as_dtype(sums, x.dtype());
  }

  // The columns are padded with rows of zeros to a whole number of tiles of the BLAS kernels, which are much slower for
  // the remainder.
  template <typename T>
  static Tensor gradient_of_weight(const Tensor& g, const Tensor& x, const Tensor& weight, const Convolution& conv) {
    constexpr int64_t kTile = 16;
    int64_t positions = conv.window.positions();
    int64_t padded = (conv.kernel_size + kTile - 1) / kTile * kTile;
    if (g.count() == 0 || weight.count() == 0) return zero_tensor(weight.dtype(), weight.shape());
    if (suits_direct_convolution<T>(conv)) return differentiate_weight_directly<T>(g, x, conv);
    Tensor sums = zero_tensor(weight.dtype(), Dims{conv.groups, conv.out_channels, padded});
    T* out = sums.mutable_data_as<T>();
    Tensor columns = Tensor::empty(x.dtype(), Dims{padded, positions});
    T* column_data = columns.mutable_data_as<T>();
    std::fill_n(column_data + conv.kernel_size * positions, (padded - conv.kernel_size) * positions, T(0));
    for_each_group(conv, [&](int64_t i, int64_t group) {
      image_to_columns(column_data, x.data_as<T>() + i * conv.in_size(), conv);
      multiply<T>(out + group * conv.out_channels * padded, g.data_as<T>() + i * conv.out_size(),
                  row_major(conv.out_channels, positions), column_data, column_major(positions, padded), T(1));
    });
    Tensor used = sums.view(Dims{conv.groups, conv.out_channels, conv.kernel_size}, sums.strides(), 0);
    return with_shape(used.contiguous(), weight.shape());
  }

  // Processes images in parts that are small enough to be summed in their dtype.
  template <typename T>
  static Tensor gradient_of_weight_in_parts(const Tensor& g, const Tensor& x, const Tensor& weight,
                                            const Convolution& conv) {
    if (conv.images <= kMostSummedPlainly) return gradient_of_weight<T>(g, x, weight, conv);
    Tensor total = zero_tensor(Dtype::kFloat64, weight.shape());
    for (int64_t first = 0; first < conv.images; first += kMostSummedPlainly) {
      Convolution part = conv;
      part.images = std::min(kMostSummedPlainly, conv.images - first);
      add_scaled(
          total,
          gradient_of_weight<T>(sliced(g, 0, first, part.images), sliced(x, 0, first, part.images), weight, part), 1.0);
    }
    return as_dtype(total, x.dtype());
  }
};
constexpr Op kConv2d = make_op<Conv2dOp>(
    "conv2d(tensor x, tensor weight, tensor? bias, int64[] stride = [1,1], int64[] padding = [0,0], int64[] dilation = "
    "[1,1], int64 groups = 1) -> tensor",
    "x [n, c, h, w] convolved with weight [out, c / groups, kh, kw], plus bias [out].", kSeparable);

}  // namespace distag::ops
