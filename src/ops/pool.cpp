// Pooling of images.
#include <limits>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"
#include "ops/reduce.h"
#include "ops/views.h"
#include "ops/window.h"

namespace distag::ops {
namespace {

// ---- max_pool2d -----------------------------------------------------------------------------------------------------

// Index in a plane of the first largest element of the window at a position; NaN is the largest.
template <typename T>
int64_t largest_in_window(const T* plane, const Window& window, int64_t out_row, int64_t out_column) {
  const Axis& rows = window.rows;
  const Axis& columns = window.columns;
  int64_t best = -1;
  for (int64_t i = rows.first_element(out_row); i < rows.last_element(out_row); ++i) {
    for (int64_t j = columns.first_element(out_column); j < columns.last_element(out_column); ++j) {
      int64_t index = rows.position(out_row, i) * columns.size + columns.position(out_column, j);
      if (best < 0 || plane[index] > plane[best] || (plane[index] != plane[index] && plane[best] == plane[best])) {
        best = index;
      }
    }
  }
  return best;
}

template <typename T>
void pool_planes(T* out, int64_t* indices, const T* x, int64_t planes, const Window& window) {
  for (int64_t p = 0; p < planes; ++p, x += window.rows.size * window.columns.size) {
    for (int64_t row = 0; row < window.rows.out; ++row) {
      for (int64_t column = 0; column < window.columns.out; ++column) {
        int64_t index = largest_in_window(x, window, row, column);
        *out++ = x[index];
        *indices++ = index;
      }
    }
  }
}

Tensors max_pool2d_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  if (x.rank() != 4) fail(Status::kInvalidArgument, "max_pool2d: x must be [n, c, h, w], not {}", describe(x));
  Dims kernel = get_dims(attributes, "kernel");
  Window window = make_window("max_pool2d", attributes, Dims{x.shape()[2], x.shape()[3]}, kernel, kernel);
  // Then every window holds an element of the image.
  if (window.rows.padding > kernel[0] / 2 || window.columns.padding > kernel[1] / 2) {
    fail(Status::kInvalidArgument, "max_pool2d: padding [{}, {}] is more than half of the kernel {}",
         window.rows.padding, window.columns.padding, to_string(kernel));
  }
  if (x.count() == 0 && x.shape()[0] * x.shape()[1] > 0) {
    fail(Status::kInvalidArgument, "max_pool2d: {} has no elements to choose from", describe(x));
  }
  Dims shape{x.shape()[0], x.shape()[1], window.rows.out, window.columns.out};
  Tensor y = Tensor::empty(x.dtype(), shape);
  Tensor indices = Tensor::empty(Dtype::kInt64, shape);
  Tensor in = x.contiguous();
  dispatch_numeric("max_pool2d", x.dtype(), [&]<typename T>(T) {
    pool_planes(y.mutable_data_as<T>(), indices.mutable_data_as<int64_t>(), in.data_as<T>(), shape[0] * shape[1],
                window);
  });
  if (saved != nullptr) {
    saved->tensors = {indices};
    saved->shapes = {x.shape(), Dims{window.rows.overlap() * window.columns.overlap()}};
  }
  return {y};
}

Tensors max_pool2d_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  Tensor g = gradients[0].contiguous();
  Tensor result = zero_tensor(sum_dtype(g.dtype(), saved.shapes[1][0]), saved.shapes[0]);
  if (result.count() == 0) return {as_dtype(result, g.dtype())};
  const auto* indices = saved.tensors[0].data_as<int64_t>();
  int64_t in_plane = saved.shapes[0][2] * saved.shapes[0][3];
  int64_t out_plane = g.shape()[2] * g.shape()[3];
  dispatch_sum("max_pool2d", g.dtype(), result.dtype(), [&]<typename T, typename Total>(T, Total) {
    Total* out = result.mutable_data_as<Total>();
    const T* values = g.data_as<T>();
    for (int64_t i = 0; i < g.count(); ++i) {
      out[i / out_plane * in_plane + indices[i]] += static_cast<Total>(values[i]);
    }
  });
  return {as_dtype(result, g.dtype())};
}

}  // namespace

constexpr Op kMaxPool2d{.name = "max_pool2d",
                        .signature =
                            "max_pool2d(tensor x, int64[] kernel, int64[] stride = kernel, "
                            "int64[] padding = [0,0]) -> tensor",
                        .summary = "The largest element of each window of x [n, c, h, w].",
                        .forward = max_pool2d_forward,
                        .backward = max_pool2d_backward};

}  // namespace distag::ops
