#include "ops/broadcast.h"

#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/require.h"

namespace distag::ops {
namespace {

int category(Dtype dtype) { return is_floating(dtype) ? 2 : dtype == Dtype::kInt64 ? 1 : 0; }

// Out-of-range numbers become the nearest int64; NaN becomes 0.
constexpr auto kToInt64 = []<typename T>(T x) DISTAG_INLINE_LAMBDA {
  if (!(x < static_cast<T>(0x1p63))) return x != x ? 0 : INT64_MAX;
  return x < static_cast<T>(-0x1p63) ? INT64_MIN : static_cast<int64_t>(x);
};

template <typename Out, typename T>
constexpr auto kConversion = [](const auto& x) {
  if constexpr (std::is_same_v<Out, Bool>)
    return xt::not_equal(x, T(0));
  else if constexpr (std::is_same_v<T, Bool>)
    return xt::cast<Out>(xt::not_equal(x, 0));
  else if constexpr (std::is_same_v<Out, int64_t> && kIsFloating<T>)
    return each(kToInt64, x);
  else
    return xt::cast<Out>(x);
};

}  // namespace

Dims broadcast_shapes(const char* op, const Dims& a, const Dims& b) {
  if (a == b) return a;
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& shorter = a.size() >= b.size() ? b : a;
  Dims shape = longer;
  size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& size = shape[lead + i];
    if (size == shorter[i] || shorter[i] == 1) continue;
    require(size == 1, "{}: shapes {} and {} do not broadcast", op, a, b);
    size = shorter[i];
  }
  return shape;
}

Dims broadcast_strides(const Tensor& tensor, const Dims& shape) {
  Dims strides;
  strides.resize(shape.size(), 0);
  size_t lead = shape.size() - tensor.rank();
  for (size_t i = 0; i < tensor.rank(); ++i) {
    if (tensor.shape()[i] == shape[lead + i]) strides[lead + i] = tensor.strides()[i];
  }
  return strides;
}

Tensor broadcast_to(const Tensor& tensor, const Dims& shape) {
  if (tensor.shape() == shape) return tensor;
  return tensor.view(shape, broadcast_strides(tensor, shape), tensor.offset());
}

Dtype result_dtype(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return a.dtype();
  if ((a.rank() == 0) != (b.rank() == 0)) {
    const Tensor& scalar = a.rank() == 0 ? a : b;
    const Tensor& array = a.rank() == 0 ? b : a;
    return category(scalar.dtype()) > category(array.dtype()) ? scalar.dtype() : array.dtype();
  }
  return promote(a.dtype(), b.dtype());
}

Tensor as_dtype(const Tensor& x, Dtype dtype) {
  if (x.dtype() == dtype) return x;
  Tensor in = x.contiguous();
  Tensor out = Tensor::empty(dtype, x.shape());
  dispatch(x.dtype(), [&]<typename T>(T) {
    dispatch(dtype, [&]<typename Out>(Out) { compute<Out, T>(out, kConversion<Out, T>, in); });
  });
  return out;
}

Tensor reduce_to(Tensor gradient, const Dims& shape, Dtype dtype) {
  if (gradient.shape() != shape) {
    size_t lead = gradient.rank() - shape.size();
    DimSet summed;
    for (size_t i = 0; i < gradient.rank(); ++i) {
      if (i < lead || (shape[i - lead] == 1 && gradient.shape()[i] != 1)) summed.set(i);
    }
    gradient = sum_over(gradient, summed, shape);
  }
  return as_dtype(gradient, dtype);
}

}  // namespace distag::ops
