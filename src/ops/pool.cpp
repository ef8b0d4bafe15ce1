// Pooling of images.
#include <limits>
#include <vector>

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

// The places in the image of the window's elements at one position, along an axis.
struct Places {
  int64_t first = 0;
  int64_t end = 0;  // a step beyond the last one
};

std::vector<Places> places_along(const Axis& axis) {
  std::vector<Places> places(static_cast<size_t>(axis.out));
  for (int64_t o = 0; o < axis.out; ++o) {
    places[static_cast<size_t>(o)] = {axis.position(o, axis.first_element(o)), axis.position(o, axis.last_element(o))};
  }
  return places;
}

// The first largest element of a window, and its index in the plane; NaN is the largest.
template <typename T>
struct Largest {
  T value;
  int64_t index;

  void meet(T other, int64_t at) {
    const bool is_larger = other > value || (other != other && value == value);
    value = is_larger ? other : value;
    index = is_larger ? at : index;
  }
};

template <typename T>
void pool_planes(T* out, int64_t* indices, const T* x, int64_t planes, const Window& window) {
  const std::vector<Places> rows = places_along(window.rows);
  const std::vector<Places> columns = places_along(window.columns);
  const int64_t width = window.columns.size;
  for (int64_t p = 0; p < planes; ++p, x += window.rows.size * width) {
    for (const Places& row : rows) {
      for (const Places& column : columns) {
        const int64_t first = row.first * width + column.first;
        Largest<T> largest{x[first], first};
        for (int64_t i = row.first; i < row.end; i += window.rows.dilation) {
          for (int64_t j = column.first; j < column.end; j += window.columns.dilation) {
            largest.meet(x[i * width + j], i * width + j);
          }
        }
        *out++ = largest.value;
        *indices++ = largest.index;
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
    for (int64_t done = 0; done < g.count(); done += out_plane, out += in_plane) {
      for (int64_t i = done; i < done + out_plane; ++i) out[indices[i]] += static_cast<Total>(values[i]);
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
