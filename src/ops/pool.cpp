// Pooling of images.
#include <algorithm>
#include <limits>
#include <vector>

#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/rows.h"
#include "ops/views.h"
#include "ops/window.h"
#include "tensor/limits.h"

namespace distag::ops {
namespace {

// Requires that every window contains an element of the image.
Window pooling_window(const char* op, const Dims& shape, const Attributes& attributes) {
  const Dims kernel = get_dims(attributes, "kernel");
  const Window window = make_window(op, attributes, Dims{shape[2], shape[3]}, kernel, kernel);
  require(window.rows.padding <= kernel[0] / 2 && window.columns.padding <= kernel[1] / 2,
          "{}: padding [{}, {}] is more than half of the kernel {}", op, window.rows.padding, window.columns.padding,
          kernel);
  return window;
}

void check_images(const char* op, const Tensor& x) {
  require(x.rank() == 4, "{}: x must be [n, c, h, w], not {}", op, x);
}

// ---- max_pool2d -----------------------------------------------------------------------------------------------------

// The positions in the image of a window's elements along an axis, for one window position.
struct Places {
  int64_t first = 0;
  int64_t end = 0;  // a step beyond the last position
};

std::vector<Places> places_along(const Axis& axis) {
  std::vector<Places> places(static_cast<size_t>(axis.out));
  for (int64_t o = 0; o < axis.out; ++o) {
    places[static_cast<size_t>(o)] = {axis.position(o, axis.first_element(o)), axis.position(o, axis.last_element(o))};
  }
  return places;
}

// Whether an element replaces the largest element so far; NaN counts as the largest.
struct Exceeds {
  template <typename T>
  DISTAG_INLINE bool operator()(T other, T largest) const {
    return other > largest || (other != other && largest == largest);
  }
};

// The first largest element of each window, and its index in the plane.
template <typename T>
void pool_rows(T* out, int64_t* indices, const T* x, const Window& window, const std::vector<Places>& rows,
               const std::vector<Places>& columns) {
  const int64_t width = window.columns.size;
  for (const Places& row : rows) {
    for (const Places& column : columns) {
      int64_t place = row.first * width + column.first;
      T largest = x[place];
      for (int64_t i = row.first; i < row.end; i += window.rows.dilation) {
        for (int64_t j = column.first; j < column.end; j += window.columns.dilation) {
          const int64_t at = i * width + j;
          const T other = x[at];
          const bool is_larger = Exceeds()(other, largest);
          largest = is_larger ? other : largest;
          place = is_larger ? at : place;
        }
      }
      *out++ = largest;
      *indices++ = place;
    }
  }
}

// In rows of at least this many outputs, all windows process one of their elements at a time; with baseline registers
// that takes longer.
constexpr int64_t kLeastWide = 16;

template <typename T>
void pool_wide_rows(T* out, int64_t* indices, const T* x, const Window& window, const std::vector<Places>& rows,
                    const std::vector<Places>& columns, const int64_t* steps) {
  const Axis& axis = window.columns;
  const auto meet = [](auto largest, auto place, const auto& others, const auto& step, int64_t start)
                        DISTAG_INLINE_LAMBDA {
                          put(place, select(each(Exceeds(), others, largest), step + start, place));
                          put(largest, select(each(Exceeds(), others, largest), others, largest));
                        };
  for (const Places& row : rows) {
    std::fill_n(out, axis.out, Maximum<T>::kStart);
    for (int64_t o = 0; o < axis.out; ++o) indices[o] = row.first * axis.size + columns[static_cast<size_t>(o)].first;
    for (int64_t i = row.first; i < row.end; i += window.rows.dilation) {
      for (int64_t k = axis.first_element(axis.out - 1); k < axis.last_element(0); ++k) {
        const int64_t last = axis.last_inside(k);
        int64_t first = axis.first_inside(k);
        if (first >= last) continue;
        const int64_t start = i * axis.size + axis.position(0, k);
        PackedRow<T> elements(x + (start + first * axis.stride), axis.stride, last - first);
        for (int64_t count = 0; first < last; first += count) {
          count = std::min(PackedRow<T>::kPiece, last - first);
          for_rows(1, count, meet, Rows(out + first), Rows(indices + first), Rows(elements.next(count)),
                   Rows(steps + first), Same(start));
        }
      }
    }
    out += axis.out;
    indices += axis.out;
  }
}

template <typename T>
void pool_planes(T* out, int64_t* indices, const T* x, int64_t planes, const Window& window) {
  if (planes == 0) return;  // otherwise there may be more places than memory has room for
  const std::vector<Places> rows = places_along(window.rows);
  const std::vector<Places> columns = places_along(window.columns);
  std::vector<int64_t> steps(columns.size());
  for (size_t o = 0; o < steps.size(); ++o) steps[o] = static_cast<int64_t>(o) * window.columns.stride;
  const bool is_wide = window.columns.out >= kLeastWide && simd::registers() != simd::Registers::kBaseline;
  for (int64_t p = 0; p < planes; ++p, x += window.rows.size * window.columns.size) {
    if (is_wide)
      pool_wide_rows(out, indices, x, window, rows, columns, steps.data());
    else
      pool_rows(out, indices, x, window, rows, columns);
    out += window.positions();
    indices += window.positions();
  }
}

// The gradient of images of `shape`: add(sums, values) adds the gradients of a plane to zeros.
template <typename Add>
Tensor spread_planes(const char* op, const Tensor& gradient, const Dims& shape, Add add) {
  if (gradient.count() == 0) return zero_tensor(gradient.dtype(), shape);
  const Tensor g = gradient.contiguous();
  Tensor result = Tensor::empty(g.dtype(), shape);
  dispatch_floating(op, g.dtype(), [&]<typename T>(T) {
    const int64_t size = shape[2] * shape[3];
    RowSums<T> sums(size);
    T* to = result.mutable_data_as<T>();
    const T* values = g.data_as<T>();
    for (int64_t p = shape[0] * shape[1]; p > 0; --p, to += size, values += g.shape()[2] * g.shape()[3]) {
      add(sums.start(), values);
      sums.round_to(to);
    }
  });
  return result;
}

}  // namespace

struct MaxPool2dOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    check_images("max_pool2d", x);
    const Window window = pooling_window("max_pool2d", x.shape(), attributes);
    require(x.count() != 0 || x.shape()[0] * x.shape()[1] == 0, "max_pool2d: {} has no elements to choose from", x);
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
      saved->shapes = {x.shape()};
    }
    return y;
  }

  static Tensor backward(const Saved& saved, Tensor g) {
    const auto* indices = saved.tensors[0].data_as<int64_t>();
    const int64_t out_plane = g.shape()[2] * g.shape()[3];
    return spread_planes("max_pool2d", g, saved.shapes[0], [&](double* sums, const auto* values) {
      for (int64_t i = 0; i < out_plane; ++i) sums[*indices++] += static_cast<double>(values[i]);
    });
  }
};
constexpr Op kMaxPool2d = make_op<MaxPool2dOp>(
    "max_pool2d(tensor x, int64[] kernel, int64[] stride = kernel, int64[] padding = [0,0]) -> tensor",
    "The largest element of each window of x [n, c, h, w].");

// ---- avg_pool2d -----------------------------------------------------------------------------------------------------

namespace {

// The windows of planes of one size, and the divisor for the sum of each window.
struct Averaging {
  std::vector<Places> rows;
  std::vector<Places> columns;
  int64_t height;
  int64_t width;
  int64_t whole;  // elements of a window, or 0 if padding does not count

  Averaging(const Window& window, bool with_padding)
      : rows(places_along(window.rows)),
        columns(places_along(window.columns)),
        height(window.rows.size),
        width(window.columns.size),
        whole(with_padding ? window.rows.kernel * window.columns.kernel : 0) {}
  // Windows of any sizes, each entirely inside the plane.
  Averaging(std::vector<Places> of_rows, std::vector<Places> of_columns, int64_t plane_height, int64_t plane_width)
      : rows(std::move(of_rows)), columns(std::move(of_columns)), height(plane_height), width(plane_width), whole(0) {}
  double divisor(const Places& row, const Places& column) const {
    return static_cast<double>(whole > 0 ? whole : (row.end - row.first) * (column.end - column.first));
  }
};

template <typename T>
void average_planes(T* out, const T* x, int64_t planes, const Averaging& windows) {
  const int64_t width = windows.width;
  for (int64_t p = 0; p < planes; ++p, x += windows.height * width) {
    for (const Places& row : windows.rows) {
      for (const Places& column : windows.columns) {
        double sum = 0;
        for (int64_t i = row.first; i < row.end; ++i) {
          for (int64_t j = column.first; j < column.end; ++j) sum += static_cast<double>(x[i * width + j]);
        }
        *out++ = static_cast<T>(sum / windows.divisor(row, column));
      }
    }
  }
}

template <typename T>
void spread_plane(double* sums, const T* g, const Averaging& windows) {
  for (const Places& row : windows.rows) {
    for (const Places& column : windows.columns) {
      const double share = static_cast<double>(*g++) / windows.divisor(row, column);
      for (int64_t i = row.first; i < row.end; ++i) {
        for (int64_t j = column.first; j < column.end; ++j) sums[i * windows.width + j] += share;
      }
    }
  }
}

// The means of the windows that make_windows() returns, `rows` times `columns` in each plane.
template <typename MakeWindows>
Tensor averaged(const char* op, const Tensor& x, int64_t rows, int64_t columns, MakeWindows make_windows) {
  const Tensor in = x.contiguous();
  Tensor y = Tensor::empty(x.dtype(), Dims{x.shape()[0], x.shape()[1], rows, columns});
  dispatch_floating(op, x.dtype(), [&]<typename T>(T) {
    if (y.count() == 0) return;
    average_planes(y.mutable_data_as<T>(), in.data_as<T>(), x.shape()[0] * x.shape()[1], make_windows());
  });
  return y;
}

// The gradient of images of `shape`. Without elements there may be more windows than memory has room for.
template <typename MakeWindows>
Tensor averaged_back(const char* op, const Tensor& g, const Dims& shape, MakeWindows make_windows) {
  if (g.count() == 0) return zero_tensor(g.dtype(), shape);
  const Averaging windows = make_windows();
  return spread_planes(op, g, shape, [&](double* sums, const auto* values) { spread_plane(sums, values, windows); });
}

Averaging averaging_windows(const Window& window, const Attributes& attributes) {
  return Averaging(window, get_bool(attributes, "count_include_pad", true));
}

}  // namespace

struct AvgPool2dOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    check_images("avg_pool2d", x);
    const Window window = pooling_window("avg_pool2d", x.shape(), attributes);
    if (saved != nullptr) {
      saved->shapes = {x.shape()};
      saved->attributes = attributes;
    }
    return {averaged("avg_pool2d", x, window.rows.out, window.columns.out,
                     [&] { return averaging_windows(window, attributes); })};
  }
  static Tensor backward(const Saved& saved, Tensor g) {
    const Window window = pooling_window("avg_pool2d", saved.shapes[0], saved.attributes);
    return averaged_back("avg_pool2d", g, saved.shapes[0], [&] { return averaging_windows(window, saved.attributes); });
  }
};
constexpr Op kAvgPool2d = make_op<AvgPool2dOp>(
    "avg_pool2d(tensor x, int64[] kernel, int64[] stride = kernel, int64[] padding = [0,0], bool count_include_pad = "
    "true) -> tensor",
    "The mean of each window of x [n, c, h, w]; the padding counts as zeros, or not at all.");

// ---- adaptive_avg_pool2d --------------------------------------------------------------------------------------------

struct AdaptiveAvgPool2dOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const Dims output = adaptive_outputs(x, attributes);
    if (saved != nullptr) saved->shapes = {x.shape(), output};
    return {
        averaged("adaptive_avg_pool2d", x, output[0], output[1], [&] { return adaptive_windows(x.shape(), output); })};
  }

  static Tensor backward(const Saved& saved, Tensor g) {
    const Dims& shape = saved.shapes[0];
    return averaged_back("adaptive_avg_pool2d", g, shape, [&] { return adaptive_windows(shape, saved.shapes[1]); });
  }

 private:
  static void check_adaptive_outputs(const Tensor& x, const Dims& output, size_t side) {
    const int64_t most = std::max(kMostAdaptiveOutputs, x.shape()[2 + side]);
    require(output[side] >= 1 && output[side] <= most,
            "adaptive_avg_pool2d: output_size {} of {} is not from 1 to {} along dim {}", output, x, most, 2 + side);
  }

  static Dims adaptive_outputs(const Tensor& x, const Attributes& attributes) {
    check_images("adaptive_avg_pool2d", x);
    const Dims output = get_dims(attributes, "output_size");
    require(output.size() == 2, "adaptive_avg_pool2d: output_size {} must be two numbers", output);
    for (size_t side = 0; side < 2; ++side) check_adaptive_outputs(x, output, side);
    require(x.shape()[2] != 0 && x.shape()[3] != 0, "adaptive_avg_pool2d: {} has no elements to average", x);
    return output;
  }

  // Window o covers floor(o size / outputs) up to ceil((o + 1) size / outputs).
  static std::vector<Places> adaptive_places(int64_t size, int64_t outputs) {
    std::vector<Places> places(static_cast<size_t>(outputs));
    for (int64_t o = 0; o < outputs; ++o) {
      places[static_cast<size_t>(o)] = {o * size / outputs, ((o + 1) * size + outputs - 1) / outputs};
    }
    return places;
  }

  static Averaging adaptive_windows(const Dims& shape, const Dims& output) {
    return Averaging(adaptive_places(shape[2], output[0]), adaptive_places(shape[3], output[1]), shape[2], shape[3]);
  }
};
constexpr Op kAdaptiveAvgPool2d =
    make_op<AdaptiveAvgPool2dOp>("adaptive_avg_pool2d(tensor x, int64[] output_size) -> tensor",
                                 "The means of output_size [oh, ow] windows of x [n, c, h, w]: window i from floor(i h "
                                 "/ oh) up to ceil((i + 1) h / oh), columns likewise.");

}  // namespace distag::ops
