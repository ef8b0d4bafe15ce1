// More ops that move elements: permute, expand, squeeze (views), flip, pad, tril, triu, cumsum.
#include <utility>

#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/rows.h"
#include "ops/unary.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

Dims with_size(Dims shape, size_t dim, int64_t size) {
  shape[dim] = size;
  return shape;
}

}  // namespace

// ---- permute --------------------------------------------------------------------------------------------------------

struct PermuteOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const Dims dims = get_dims(attributes, "dims");
    Dims order = dims;
    DimSet seen;
    for (int64_t& dim : order) {
      dim = static_cast<int64_t>(checked_dim("permute", dim, x));
      seen.set(static_cast<size_t>(dim));
    }
    require(order.size() == x.rank() && seen.count() == x.rank(), "permute: dims {} do not name each dim of {} once",
            dims, x);
    if (saved != nullptr) {
      Dims inverse = order;
      for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
      saved->shapes = {inverse};
    }
    return permuted(x, order);
  }
  static Tensor backward(const Saved& saved, Tensor g) { return permuted(g, saved.shapes[0]); }
};
constexpr Op kPermute = make_op<PermuteOp>("permute(tensor x, int64[] dims) -> tensor",
                                           "The dims of x in the order of dims.", kView | kCheap);

// ---- expand ---------------------------------------------------------------------------------------------------------

struct ExpandOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    Dims shape = get_dims(attributes, "shape");
    if (shape.size() >= x.rank()) shape = expanded_shape(x, shape);
    element_count(shape, dtype_size(x.dtype()));
    require(shape.size() >= x.rank() && broadcast_shapes("expand", x.shape(), shape) == shape,
            "expand: {} does not broadcast to {}", x, shape);
    if (saved != nullptr) {
      saved->shapes = {x.shape()};
      saved->dtypes = {x.dtype()};
    }
    return x.view(shape, broadcast_strides(x, shape), x.offset());
  }
  static Tensor backward(const Saved& saved, Tensor g) {
    return reduce_to(std::move(g), saved.shapes[0], saved.dtypes[0]);
  }

 private:
  // The requested shape with each -1 replaced by the size of that dim.
  static Dims expanded_shape(const Tensor& x, Dims shape) {
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] != -1 || i + x.rank() < shape.size()) continue;
      shape[i] = x.shape()[i + x.rank() - shape.size()];
    }
    return shape;
  }
};
constexpr Op kExpand = make_op<ExpandOp>("expand(tensor x, int64[] shape) -> tensor",
                                         "x broadcast to the shape, in which -1 keeps a size.", kView);

// ---- squeeze --------------------------------------------------------------------------------------------------------

struct SqueezeOp : ReshapedBack {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    size_t dim = checked_dim("squeeze", get_int(attributes, "dim", 0), x);
    if (saved != nullptr) saved->shapes = {x.shape()};
    Dims shape = x.shape();
    Dims strides = x.strides();
    if (dim < x.rank() && shape[dim] == 1) {
      std::rotate(shape.begin() + dim, shape.begin() + dim + 1, shape.end());
      std::rotate(strides.begin() + dim, strides.begin() + dim + 1, strides.end());
      shape.pop_back();
      strides.pop_back();
    }
    return x.view(shape, strides, x.offset());
  }
};
constexpr Op kSqueeze = make_op<SqueezeOp>("squeeze(tensor x, int64 dim) -> tensor",
                                           "x without the dim if its size is 1, else x as it is.", kView | kCheap);

// ---- flip -----------------------------------------------------------------------------------------------------------

struct FlipOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    if (saved != nullptr) saved->attributes = attributes;
    return flipped(inputs[0], flipped_dims(attributes, inputs[0]));
  }
  static Tensor backward(const Saved& saved, Tensor g) { return flipped(g, flipped_dims(saved.attributes, g)); }

 private:
  // Shorter rows are copied element by element.
  static constexpr int64_t kLeastReversed = 64;

  static Tensor flipped(const Tensor& x, const DimSet& dims) {
    Dims strides = x.strides();
    int64_t offset = x.offset();
    for (size_t i = 0; i < x.rank() && x.count() > 0; ++i) {
      if (!dims[i]) continue;
      offset += (x.shape()[i] - 1) * strides[i];
      strides[i] = -strides[i];
    }
    const Tensor view = x.view(x.shape(), strides, offset);
    if (x.count() == 0 || strides.empty() || strides.back() != -1 || x.shape().back() < kLeastReversed)
      return view.clone();
    const RowPlan<1> plan(x.shape(), {strides});
    Tensor y = empty_like(x);
    dispatch(x.dtype(), [&]<typename T>(T) {
      T* to = y.mutable_data_as<T>();
      plan.for_each_row([&](const std::array<int64_t, 1>& offsets) {
        for_rows(
            1, plan.row_length,
            [](auto row, const auto& reversed)
                DISTAG_INLINE_LAMBDA { std::copy(reversed.crbegin(), reversed.crend(), row.begin()); },
            Rows(to), Rows(view.data_as<T>() + offsets[0] - (plan.row_length - 1)));
        to += plan.row_length;
      });
    });
    return y;
  }

  static DimSet flipped_dims(const Attributes& attributes, const Tensor& x) {
    return checked_dims("flip", get_dims(attributes, "dims"), x);
  }
};
constexpr Op kFlip = make_op<FlipOp>("flip(tensor x, int64[] dims = []) -> tensor",
                                     "x with the order of the dims reversed; [] for all.", kCheap);

// ---- pad ------------------------------------------------------------------------------------------------------------

struct PadOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    require(x.rank() != 0, "pad: {} has no dims", x);
    size_t dim = checked_dim("pad", get_int(attributes, "dim", -1), x);
    int64_t before = get_int(attributes, "before", 0);
    int64_t after = get_int(attributes, "after", 0);
    require(before >= 0 && after >= 0, "pad: {} before and {} after are no numbers of elements", before, after);
    Dims shape = with_size(x.shape(), dim, joined_size("pad", joined_size("pad", before, x.shape()[dim]), after));
    element_count(shape, dtype_size(x.dtype()));
    const double number = get_float(attributes, "value", 0.0);
    check_fits("pad", x.dtype(), number);
    Tensor value = as_dtype(Tensor::scalar(Dtype::kFloat64, number), x.dtype());
    Tensor y = Tensor::empty(x.dtype(), shape);
    int64_t start = 0;
    const auto write = [&](int64_t size, const Tensor* given) {
      const Tensor part = sliced(y, dim, std::exchange(start, start + size), size);
      write_part(y, part, given != nullptr ? *given : broadcast_to(value, part.shape()));
    };
    write(before, nullptr);
    write(x.shape()[dim], &x);
    write(after, nullptr);
    if (saved != nullptr) saved->shapes = {Dims{static_cast<int64_t>(dim), before, x.shape()[dim]}};
    return y;
  }
  static Tensor backward(const Saved& saved, Tensor g) {
    const Dims& what = saved.shapes[0];
    return sliced(g, static_cast<size_t>(what[0]), what[1], what[2]);
  }
};
constexpr Op kPad =
    make_op<PadOp>("pad(tensor x, int64 dim = -1, int64 before = 0, int64 after = 0, float64 value = 0) -> tensor",
                   "x with `before` and `after` elements of value at the ends of dim.");

// ---- tril, triu -----------------------------------------------------------------------------------------------------

namespace {

enum class Triangle { kLower, kUpper };

// Writes zeros on the other side of a diagonal of the last two dims.
Tensor triangle_of(const Tensor& x, Triangle triangle, int64_t diagonal) {
  Tensor y = x.clone();
  const int64_t rows = x.shape()[x.rank() - 2];
  const int64_t columns = x.shape().back();
  const bool is_lower = triangle == Triangle::kLower;
  dispatch(x.dtype(), [&]<typename T>(T) {
    T* data = y.mutable_data_as<T>();
    for (int64_t r = 0; rows > 0 && r < y.count() / std::max<int64_t>(columns, 1); ++r, data += columns) {
      const int64_t at = r % rows + std::clamp(diagonal, -rows, columns);  // index of the diagonal in this row
      const int64_t middle = std::clamp<int64_t>(is_lower ? at + 1 : at, 0, columns);
      is_lower ? std::fill(data + middle, data + columns, T(0)) : std::fill(data, data + middle, T(0));
    }
  });
  return y;
}

template <Name kName, Triangle kTriangle>
struct TriangleOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    require(x.rank() >= 2, "{}: {} is no matrix", kName.text, x);
    if (saved != nullptr) saved->attributes = attributes;
    return triangle_of(x, kTriangle, get_int(attributes, "diagonal", 0));
  }
  static Tensor backward(const Saved& saved, Tensor g) {
    return triangle_of(g, kTriangle, get_int(saved.attributes, "diagonal", 0));
  }
};

}  // namespace

constexpr Op kTril = make_op<TriangleOp<"tril", Triangle::kLower>>(
    "tril(tensor x, int64 diagonal = 0) -> tensor",
    "x [.., n, m] with zeros above a diagonal; 0 is the main one, 1 the one above it.", kCheap);

constexpr Op kTriu = make_op<TriangleOp<"triu", Triangle::kUpper>>(
    "triu(tensor x, int64 diagonal = 0) -> tensor",
    "x [.., n, m] with zeros below a diagonal; 0 is the main one, 1 the one above it.", kCheap);

// ---- cumsum ---------------------------------------------------------------------------------------------------------

namespace {

// x as [outer, count, inner]: sums along the middle from its first element on, or from its last one back. Several sums
// are computed at once, since an addition waits for the one before it.
template <typename T>
struct RunningSums {
  using Total = typename Sum<T>::Total;
  static constexpr int64_t kStrip = 64;
  static constexpr int64_t kRows = 4;

  DISTAG_INLINE static void run(T* x, int64_t outer, int64_t count, int64_t inner, bool from_the_end) {
    T* first = from_the_end ? x + (count - 1) * inner : x;
    const int64_t step = from_the_end ? -inner : inner;
    int64_t done = 0;
    if (inner == 1) {
      for (; done + kRows <= outer; done += kRows) add_rows(first + done * count, count, step);
    }
    for (; done < outer; ++done) {
      for (int64_t j = 0; j < inner; j += kStrip) {
        add(first + done * count * inner + j, count, step, std::min(kStrip, inner - j));
      }
    }
  }
  DISTAG_INLINE static void add_rows(T* x, int64_t count, int64_t step) {
    Total sums[kRows] = {};
    for (int64_t i = 0; i < count; ++i, x += step) {
      DISTAG_UNROLL
      for (int64_t r = 0; r < kRows; ++r) {
        sums[r] = Sum<T>::join(sums[r], static_cast<Total>(x[r * count]));
        x[r * count] = static_cast<T>(sums[r]);
      }
    }
  }
  DISTAG_INLINE static void add(T* x, int64_t count, int64_t step, int64_t width) {
    Total sums[kStrip] = {};
    for (int64_t i = 0; i < count; ++i, x += step) {
      for (int64_t j = 0; j < width; ++j) {
        sums[j] = Sum<T>::join(sums[j], static_cast<Total>(x[j]));
        x[j] = static_cast<T>(sums[j]);
      }
    }
  }
};

Tensor running_sums(const Tensor& input, size_t dim, bool from_the_end) {
  Tensor y = (input.dtype() == Dtype::kBool ? as_dtype(input, Dtype::kInt64) : input).clone();
  if (y.count() == 0 || y.rank() == 0) return y;
  int64_t count = y.shape()[dim];
  int64_t inner = y.strides()[dim];
  dispatch_numeric("cumsum", y.dtype(), [&]<typename T>(T) {
    simd::run<RunningSums<T>, T*, int64_t, int64_t, int64_t, bool>(y.mutable_data_as<T>(), y.count() / count / inner,
                                                                   count, inner, from_the_end);
  });
  return y;
}

}  // namespace

struct CumsumOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    size_t dim = checked_dim("cumsum", get_int(attributes, "dim", -1), inputs[0]);
    if (saved != nullptr) saved->shapes = {Dims{static_cast<int64_t>(dim)}};
    return running_sums(inputs[0], dim, false);
  }
  static Tensor backward(const Saved& saved, Tensor g) {
    return running_sums(g, static_cast<size_t>(saved.shapes[0][0]), true);
  }
};
constexpr Op kCumsum =
    make_op<CumsumOp>("cumsum(tensor x, int64 dim = -1) -> tensor",
                      "The sums of the first elements along dim, up to each, in the shape of x.", kCheap);

}  // namespace distag::ops
