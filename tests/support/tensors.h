#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensor/tensor.h"

// Small tensors for tests of tensor and ops.
namespace distag::testing {

template <typename T>
Dtype dtype_of();
template <>
inline Dtype dtype_of<float>() {
  return Dtype::kFloat32;
}
template <>
inline Dtype dtype_of<double>() {
  return Dtype::kFloat64;
}
template <>
inline Dtype dtype_of<int64_t>() {
  return Dtype::kInt64;
}
template <>
inline Dtype dtype_of<uint8_t>() {
  return Dtype::kBool;
}

template <typename T>
Tensor tensor_of(const Dims& shape, const std::vector<T>& values) {
  Tensor tensor = Tensor::empty(dtype_of<T>(), shape);
  if (!values.empty()) std::copy(values.begin(), values.end(), tensor.mutable_data_as<T>());
  return tensor;
}

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.count()));
  tensor.copy_to(values.data());
  return values;
}

// The same values in memory with gaps, so that it is not row-major.
inline Tensor with_gaps(const Tensor& x) {
  Dims shape = x.shape();
  for (int64_t& size : shape) size *= 2;
  Tensor wide = Tensor::empty(x.dtype(), shape);
  Dims strides = wide.strides();
  for (int64_t& stride : strides) stride *= 2;
  Tensor view = wide.view(x.shape(), strides, 0);
  size_t item_size = dtype_size(x.dtype());
  Tensor source = x.contiguous();
  if (x.count() > 0) std::fill_n(wide.mutable_data(), wide.byte_size(), std::byte{1});
  for (int64_t i = 0; i < x.count(); ++i) {
    int64_t rest = i;
    int64_t place = 0;
    for (size_t d = x.rank(); d-- > 0;) {
      place += rest % x.shape()[d] * strides[d];
      rest /= x.shape()[d];
    }
    std::copy_n(source.data() + static_cast<size_t>(i) * item_size, item_size,
                wide.mutable_data() + static_cast<size_t>(place) * item_size);
  }
  return view;
}

}  // namespace distag::testing
