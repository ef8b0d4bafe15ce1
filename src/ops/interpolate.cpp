// interpolate: resizes images by index_select of rows and columns and by means of the selected elements.
#include <algorithm>
#include <string>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/require.h"
#include "ops/views.h"
#include "tensor/limits.h"

namespace distag::ops {
namespace {

constexpr const char* kInterpolateName = "interpolate";

struct Resizing {
  Dims size;
  bool is_bilinear = false;
  bool aligns_corners = false;

  Resizing(const Tensor& x, const Attributes& attributes)
      : size(get_dims(attributes, "size")), aligns_corners(get_bool(attributes, "align_corners", false)) {
    const std::string mode = get_text(attributes, "mode", "nearest");
    is_bilinear = mode == "bilinear";
    require(is_bilinear || mode == "nearest", "interpolate: mode \"{}\" is neither nearest nor bilinear", mode);
    require(!aligns_corners || is_bilinear, "interpolate: align_corners needs mode bilinear, not {}", mode);
    check(x);
  }
  // The side to resize first: the one that leaves fewer elements.
  size_t first_side(const Dims& shape) const {
    const auto left = [&](size_t side) {
      return static_cast<double>(size[side]) * static_cast<double>(shape[3 - side]);
    };
    return left(1) <= left(0) ? 1 : 0;
  }

 private:
  void check(const Tensor& x) const {
    require_floating(kInterpolateName, x);
    require(x.rank() == 4 && x.shape()[2] != 0 && x.shape()[3] != 0,
            "interpolate: x must be [n, c, h, w] with rows and columns, not {}", x);
    const bool fits =
        size.size() == 2 && size[0] >= 1 && size[1] >= 1 && size[0] <= kMostPixels && size[1] <= kMostPixels / size[0];
    require(fits, "interpolate: size {} must be two numbers above 0 with a product of {} at most", size, kMostPixels);
  }
};

// For each output along a side: the one or two elements that it is computed from, and the share of the second, shaped
// to broadcast to the result. Without a second element the output is the first one.
struct Sources {
  Tensor first;
  Tensor second;
  Tensor share;

  Sources(const Resizing& resizing, Dtype dtype, int64_t size, size_t side) {
    const int64_t outputs = resizing.size[side];
    first = Tensor::empty(Dtype::kInt64, Dims{outputs});
    if (!resizing.is_bilinear) {
      for (int64_t o = 0; o < outputs; ++o) first.mutable_data_as<int64_t>()[o] = nearest(o, size, outputs);
      return;
    }
    second = Tensor::empty(Dtype::kInt64, Dims{outputs});
    share = Tensor::empty(Dtype::kFloat64, side == 0 ? Dims{outputs, 1} : Dims{outputs});
    for (int64_t o = 0; o < outputs; ++o) {
      const double place = resizing.aligns_corners ? corner_place(o, size, outputs) : center_place(o, size, outputs);
      const int64_t below = std::min(static_cast<int64_t>(place), size - 1);
      first.mutable_data_as<int64_t>()[o] = below;
      second.mutable_data_as<int64_t>()[o] = std::min(below + 1, size - 1);
      share.mutable_data_as<double>()[o] = place - static_cast<double>(below);
    }
    share = as_dtype(share, dtype);
  }

 private:
  // floor(o size / outputs), computed without overflow.
  static int64_t nearest(int64_t o, int64_t size, int64_t outputs) {
    return o * (size / outputs) + o * (size % outputs) / outputs;
  }
  static double corner_place(int64_t o, int64_t size, int64_t outputs) {
    if (outputs == 1) return 0;
    return static_cast<double>(o) * (static_cast<double>(size - 1) / static_cast<double>(outputs - 1));
  }
  static double center_place(int64_t o, int64_t size, int64_t outputs) {
    const double scale = static_cast<double>(size) / static_cast<double>(outputs);
    return std::max(0.0, (static_cast<double>(o) + 0.5) * scale - 0.5);
  }
};

Tensor taken_at(const Tensor& x, const Tensor& index, size_t dim) {
  return kIndexSelect.forward(Tensors{x, index}, make_attributes({{"dim", static_cast<int64_t>(dim)}}), nullptr)[0];
}

Tensor added_at(const Tensor& x, const Tensor& index, const Tensor& source, size_t dim) {
  const Attributes along = make_attributes({{"dim", static_cast<int64_t>(dim)}});
  return kIndexAdd.forward(Tensors{x, index, source}, along, nullptr)[0];
}

constexpr auto kFirstShareOf = [](const auto& x, const auto& share) {
  using T = Element<decltype(x)>;
  return x * (T(1) - share);
};
constexpr auto kMeanOf = [](const auto& a, const auto& b, const auto& share) {
  using T = Element<decltype(a)>;
  return a * (T(1) - share) + b * share;
};

}  // namespace

struct InterpolateOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Resizing resizing(inputs[0], attributes);
    if (saved != nullptr) {
      saved->shapes = {inputs[0].shape()};
      saved->attributes = attributes;
    }
    Tensor x = inputs[0];
    const size_t first_side = resizing.first_side(x.shape());
    for (const size_t side : {first_side, 1 - first_side}) {
      const Sources sources(resizing, x.dtype(), x.shape()[2 + side], side);
      const Tensor first = taken_at(x, sources.first, 2 + side);
      x = sources.second
              ? combine(kInterpolateName, kMeanOf, first, taken_at(x, sources.second, 2 + side), sources.share)
              : first;
    }
    return x;
  }

  // In double, until the sums of both sides are made.
  static Tensor backward(const Saved& saved, const Tensor& gradient) {
    Tensor g = as_dtype(gradient, Dtype::kFloat64);
    const Dims& shape = saved.shapes[0];
    const Resizing resizing(broadcast_to(Tensor::scalar(g.dtype(), 0.0), shape), saved.attributes);
    const size_t first_side = resizing.first_side(shape);
    for (const size_t side : {1 - first_side, first_side}) {
      const size_t dim = 2 + side;
      const Sources sources(resizing, g.dtype(), shape[dim], side);
      Dims smaller = g.shape();
      smaller[dim] = shape[dim];
      Tensor sums = zero_tensor(g.dtype(), smaller);
      if (!sources.second) {
        g = added_at(sums, sources.first, g, dim);
        continue;
      }
      sums = added_at(sums, sources.first, value_of(kInterpolateName, kFirstShareOf, g, sources.share), dim);
      g = added_at(sums, sources.second, value_of(kInterpolateName, kProductOf, g, sources.share), dim);
    }
    return as_dtype(g, gradient.dtype());
  }
};
constexpr Op kInterpolate = make_op<InterpolateOp>(
    "interpolate(tensor x, int64[] size, text mode = nearest, bool align_corners = false) -> tensor",
    "x [n, c, h, w] with size [rows, columns]: nearest takes row floor(i h / rows), bilinear the mean of the four "
    "elements around a place, centers (or corners) at their places; columns likewise.");

}  // namespace distag::ops
