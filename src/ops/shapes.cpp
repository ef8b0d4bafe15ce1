// Ops that move elements without computing: transpose, reshape, slice, concat, unsqueeze, stack, split, detach, clone,
// cast, repeat.
#include <algorithm>

#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/views.h"

namespace distag::ops {

// ---- transpose ------------------------------------------------------------------------------------------------------

struct TransposeOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    size_t dim0 = checked_dim("transpose", get_int(attributes, "dim0", 0), x);
    size_t dim1 = checked_dim("transpose", get_int(attributes, "dim1", 0), x);
    if (saved != nullptr) saved->shapes = {Dims{static_cast<int64_t>(dim0), static_cast<int64_t>(dim1)}};
    return x.rank() == 0 ? x.view(x.shape(), x.strides(), x.offset()) : transposed(x, dim0, dim1);
  }
  static Tensor backward(const Saved& saved, Tensor g) {
    const Dims& dims = saved.shapes[0];
    return g.rank() == 0 ? g : transposed(g, static_cast<size_t>(dims[0]), static_cast<size_t>(dims[1]));
  }
};
constexpr Op kTranspose = make_op<TransposeOp>("transpose(tensor x, int64 dim0, int64 dim1) -> tensor",
                                               "x with two dims swapped.", kView | kCheap);

// ---- reshape --------------------------------------------------------------------------------------------------------

struct ReshapeOp : ReshapedBack {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    Dims shape = resolved_shape(x, get_dims(attributes, "shape"));
    if (saved != nullptr) saved->shapes = {x.shape()};
    Tensor y = with_shape(x, shape);
    // Returns a separate tensor even if the shape stays.
    return y.id() == x.id() ? x.view(x.shape(), x.strides(), x.offset()) : y;
  }

 private:
  // The requested shape with its -1 replaced by the remaining size.
  static Dims resolved_shape(const Tensor& x, const Dims& wanted) {
    Dims shape = wanted;
    size_t unknown = shape.size();
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] != -1) continue;
      require(unknown == shape.size(), "reshape: {} has more than one -1", wanted);
      unknown = i;
      shape[i] = 1;
    }
    int64_t known = element_count(shape);
    if (unknown != shape.size()) {
      shape[unknown] = known != 0 && x.count() % known == 0 ? x.count() / known : -1;
      known = shape[unknown] < 0 ? -1 : known * shape[unknown];
    }
    require(known == x.count(), "reshape: {} has {} elements and does not fit shape {}", x, x.count(), wanted);
    return shape;
  }
};
constexpr Op kReshape = make_op<ReshapeOp>("reshape(tensor x, int64[] shape) -> tensor",
                                           "x in another shape, in which one size may be -1.", kView | kCheap);

// ---- slice ----------------------------------------------------------------------------------------------------------

struct SliceOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    require(x.rank() != 0, "slice: {} has no dim to slice", x);
    size_t dim = checked_dim("slice", get_int(attributes, "dim", 0), x);
    int64_t step = get_int(attributes, "step", 1);
    require(step > 0, "slice: step {} is not positive", step);
    int64_t size = x.shape()[dim];
    int64_t start = clamped_position(get_int(attributes, "start", 0), size);
    int64_t stop = clamped_position(get_int(attributes, "stop", INT64_MAX), size);
    step = std::min(step, std::max<int64_t>(size, 1));
    int64_t count = stop > start ? (stop - start - 1) / step + 1 : 0;
    if (saved != nullptr) saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dim), start, count, step}};
    return sliced(x, dim, start, count, step);
  }
  static Tensor backward(const Saved& saved, Tensor g) {
    const Dims& what = saved.shapes[1];
    Tensor result = zero_tensor(g.dtype(), saved.shapes[0]);
    write_part(result, sliced(result, static_cast<size_t>(what[0]), what[1], what[2], what[3]), g);
    return result;
  }

 private:
  // As in Python, negative positions count from the end, and positions outside are clamped.
  static int64_t clamped_position(int64_t position, int64_t size) {
    if (position < 0) position = position < -size ? 0 : position + size;
    return std::min(position, size);
  }
};
constexpr Op kSlice = make_op<SliceOp>(
    "slice(tensor x, int64 dim = 0, int64 start = 0, int64 stop = 9223372036854775807, int64 step = 1) -> tensor",
    "start, start + step, and so on, below stop, of one dim of x.", kView | kCheap);

// ---- concat ---------------------------------------------------------------------------------------------------------

struct ConcatOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    require(inputs[0].rank() != 0, "concat: {} has no dim to be joined along", inputs[0]);
    const size_t dim = checked_dim("concat", get_int(attributes, "dim", 0), inputs[0]);
    for (const Tensor& x : inputs) {
      bool fits = x.rank() == inputs[0].rank();
      for (size_t i = 0; i < x.rank() && fits; ++i) fits = i == dim || x.shape()[i] == inputs[0].shape()[i];
      require(fits, "concat: {} and {} differ in more than dim {}", inputs[0], x, dim);
    }
    return joined(inputs, dim, saved);
  }

  static Tensors backward(const Saved& saved, const Tensor& g) {
    Tensors result(saved.dtypes.size());
    const auto dim = static_cast<size_t>(saved.shapes[0][0]);
    int64_t start = 0;
    for (size_t i = 0; i < result.size(); ++i) {
      const int64_t size = saved.shapes[i + 1][0];
      if (saved.needs(i)) result[i] = as_dtype(sliced(g, dim, start, size), saved.dtypes[i]);
      start += size;
    }
    return result;
  }

  // Joins parts that differ only in dim.
  static Tensor joined(Inputs parts, size_t dim, Saved* saved) {
    Dims shape = parts[0].shape();
    Dtype dtype = parts[0].dtype();
    shape[dim] = 0;
    for (const Tensor& x : parts) {
      shape[dim] = joined_size("concat", shape[dim], x.shape()[dim]);
      dtype = promote(dtype, x.dtype());
    }
    Tensor y = Tensor::empty(dtype, shape);
    int64_t start = 0;
    for (const Tensor& x : parts) {
      write_part(y, sliced(y, dim, start, x.shape()[dim]), as_dtype(x, dtype));
      start += x.shape()[dim];
    }
    if (saved == nullptr) return y;
    saved->shapes.push_back(Dims{static_cast<int64_t>(dim)});
    for (const Tensor& x : parts) {
      saved->shapes.push_back(Dims{x.shape()[dim]});
      saved->dtypes.push_back(x.dtype());
    }
    return y;
  }
};
constexpr Op kConcat = make_op<ConcatOp>("concat(tensor... xs, int64 dim = 0) -> tensor",
                                         "Tensors one after the other along dim; their other sizes are equal.", kCheap);

// ---- unsqueeze, stack -----------------------------------------------------------------------------------------------

namespace {

// A view with a dim of size 1 before `dim`.
Tensor with_dim(const Tensor& x, size_t dim) {
  Dims shape = x.shape();
  Dims strides = x.strides();
  shape.push_back(1);
  strides.push_back(1);
  std::rotate(shape.begin() + dim, shape.end() - 1, shape.end());
  std::rotate(strides.begin() + dim, strides.end() - 1, strides.end());
  return x.view(shape, strides, x.offset());
}

// A dim that an op inserts: from -(rank + 1) to rank.
size_t checked_new_dim(const char* op, int64_t dim, const Tensor& x) {
  auto rank = static_cast<int64_t>(x.rank());
  require(dim >= -rank - 1 && dim <= rank, "{}: dim {} is out of range for {}", op, dim, x);
  return static_cast<size_t>(dim < 0 ? dim + rank + 1 : dim);
}

}  // namespace

struct UnsqueezeOp : ReshapedBack {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    if (saved != nullptr) saved->shapes = {x.shape()};
    return with_dim(x, checked_new_dim("unsqueeze", get_int(attributes, "dim", 0), x));
  }
};
constexpr Op kUnsqueeze = make_op<UnsqueezeOp>("unsqueeze(tensor x, int64 dim) -> tensor",
                                               "x with a new dim of size 1 before the place dim.", kView | kCheap);

struct StackOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& first = inputs[0];
    const size_t dim = checked_new_dim("stack", get_int(attributes, "dim", 0), first);
    Tensors parts;
    for (const Tensor& x : inputs) {
      require(x.shape() == first.shape(), "stack: {} and {} have different shapes", first, x);
      parts.push_back(with_dim(x, dim));
    }
    const Tensor y = ConcatOp::joined(parts, dim, saved);
    if (saved != nullptr) saved->shapes.push_back(first.shape());
    return y;
  }
  static Tensors backward(const Saved& saved, const Tensor& g) {
    Tensors result = ConcatOp::backward(saved, g);
    for (Tensor& part : result) part = part ? with_shape(part, saved.shapes.back()) : part;
    return result;
  }
};
constexpr Op kStack =
    make_op<StackOp>("stack(tensor... xs, int64 dim = 0) -> tensor", "Tensors of one shape along a new dim.");

// ---- split ----------------------------------------------------------------------------------------------------------

struct SplitOp {
  static Tensors forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    require(x.rank() != 0, "split: {} has no dims", x);
    const size_t dim = checked_dim("split", get_int(attributes, "dim", 0), x);
    const Dims sizes = get_dims(attributes, "sizes");
    int64_t left = x.shape()[dim];
    for (int64_t size : sizes) left = size < 0 || size > left ? -1 : left - size;
    require(left == 0, "split: sizes {} do not add up to dim {} of {}", sizes, dim, x);
    if (saved != nullptr) saved->shapes = {x.shape(), sizes, Dims{static_cast<int64_t>(dim)}};
    Tensors parts;
    int64_t start = 0;
    for (int64_t size : sizes) {
      parts.push_back(sliced(x, dim, start, size));
      start += size;
    }
    return parts;
  }

  // Parts without a gradient count as zeros.
  static Tensor backward(const Saved& saved, Tensors gradients) {
    const auto reached = std::find_if(gradients.begin(), gradients.end(), [](const Tensor& g) { return bool(g); });
    if (reached == gradients.end()) return Tensor();
    const Tensor zero = Tensor::scalar(reached->dtype(), 0.0);
    const auto dim = static_cast<size_t>(saved.shapes[2][0]);
    Dims shape = saved.shapes[0];
    for (size_t i = 0; i < gradients.size(); ++i) {
      shape[dim] = saved.shapes[1][i];
      if (!gradients[i]) gradients[i] = broadcast_to(zero, shape);
    }
    return ConcatOp::joined(gradients, dim, nullptr);
  }
};
constexpr Op kSplit =
    make_op<SplitOp>("split(tensor x, int64[] sizes, int64 dim = 0) -> tensor...",
                     "x cut along dim into parts of the sizes, which add up to its own.", kView | kCheap);

// ---- detach, clone, cast --------------------------------------------------------------------------------------------

struct DetachOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved*) {
    const Tensor& x = inputs[0];
    return x.view(x.shape(), x.strides(), x.offset());
  }
};
constexpr Op kDetach =
    make_op<DetachOp>("detach(tensor x) -> tensor", "x without history, over the same storage.", kView | kCheap);

struct CloneOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved*) { return inputs[0].clone(); }
  static Tensor backward(const Saved&, Tensor g) { return g; }
};
constexpr Op kClone = make_op<CloneOp>("clone(tensor x) -> tensor", "x in storage of its own.", kCheap);

struct CastOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    Dtype dtype = get_dtype(attributes, "dtype", x.dtype());
    if (saved != nullptr) saved->dtypes = {x.dtype()};
    // A cast to its own dtype returns the current values, copied at the first write.
    return dtype == x.dtype() ? x.snapshot() : as_dtype(x, dtype);
  }
  static Tensor backward(const Saved& saved, Tensor g) { return as_dtype(g, saved.dtypes[0]); }
};
constexpr Op kCast = make_op<CastOp>("cast(tensor x, dtype dtype) -> tensor", "x in another dtype.", kCheap);

// ---- repeat ---------------------------------------------------------------------------------------------------------

struct RepeatOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const Dims repeats = checked_repeats(x, get_dims(attributes, "repeats"));
    Dims led;
    led.resize(repeats.size() - x.rank(), 1);
    for (const int64_t size : x.shape()) led.push_back(size);
    Dims shape = led;
    for (size_t d = 0; d < shape.size(); ++d) {
      require(!__builtin_mul_overflow(led[d], repeats[d], &shape[d]),
              "repeat: {} times dim {} of {} is more than an int64 holds", repeats[d], d, led);
    }
    if (saved != nullptr) saved->shapes = {x.shape(), repeats};
    if (element_count(shape, dtype_size(x.dtype())) == 0) return Tensor::empty(x.dtype(), shape);
    if (shape == led) return with_shape(x.clone(), shape);
    Tensor y = with_shape(x.contiguous(), led);
    for (size_t d = shape.size(); d-- > 0;) {
      if (repeats[d] != 1) y = with_copies(y, d, repeats[d]);
    }
    return y;
  }

  // The sums over the copies; sums over several dims are computed in double, so that each is rounded once.
  static Tensor backward(const Saved& saved, Tensor g) {
    const Dtype dtype = g.dtype();
    const Dims& repeats = saved.shapes[1];
    if (g.count() == 0) return zero_tensor(dtype, saved.shapes[0]);
    const auto summed = std::count_if(repeats.begin(), repeats.end(), [](int64_t count) { return count != 1; });
    g = (summed > 1 ? as_dtype(g, Dtype::kFloat64) : g).contiguous();
    Dims left = g.shape();
    for (size_t d = 0; d < left.size(); ++d) {
      if (repeats[d] == 1) continue;
      left[d] /= repeats[d];
      const Slabs slabs(left, d);
      const Tensor copies = with_shape(g, Dims{slabs.outer, repeats[d], slabs.size * slabs.inner});
      g = sum_over(copies, DimSet(2), left);
    }
    return as_dtype(with_shape(g, saved.shapes[0]), dtype);
  }

 private:
  static constexpr int64_t kMostRepeats = int64_t{1} << 24;

  static Dims checked_repeats(const Tensor& x, const Dims& repeats) {
    bool fits = repeats.size() >= x.rank();
    for (const int64_t count : repeats) fits = fits && count >= 0 && count <= kMostRepeats;
    require(fits, "repeat: repeats {} must be {} numbers or more, from 0 to {}, for {}", repeats, x.rank(),
            kMostRepeats, x);
    return repeats;
  }

  // A row-major x with elements, repeated `count` times along dim.
  static Tensor with_copies(const Tensor& x, size_t dim, int64_t count) {
    const Slabs slabs(x.shape(), dim);
    const int64_t inner = slabs.size * slabs.inner;
    const Tensor one = with_shape(x, Dims{slabs.outer, 1, inner});
    Dims shape = x.shape();
    shape[dim] *= count;
    return with_shape(broadcast_to(one, Dims{slabs.outer, count, inner}).contiguous(), shape);
  }
};
constexpr Op kRepeat = make_op<RepeatOp>("repeat(tensor x, int64[] repeats) -> tensor",
                                         "x repeats[i] times along each dim i, of which the first are new ones where "
                                         "there are more repeats than dims of x.");

}  // namespace distag::ops
