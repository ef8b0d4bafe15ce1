#include "ops/views.h"
#include "ops/require.h"

#include <cstring>

#include "base/error.h"
#include "tensor/strided.h"

namespace distag::ops {

size_t checked_dim(const char* op, int64_t dim, const Tensor& x) {
  int64_t rank = std::max<int64_t>(static_cast<int64_t>(x.rank()), 1);
  require(dim >= -rank && dim < rank, "{}: dim {} is out of range for {}", op, dim, x);
  return static_cast<size_t>(dim < 0 ? dim + rank : dim);
}

Tensor transposed(const Tensor& x, size_t dim0, size_t dim1) {
  Dims shape = x.shape();
  Dims strides = x.strides();
  std::swap(shape[dim0], shape[dim1]);
  std::swap(strides[dim0], strides[dim1]);
  return x.view(shape, strides, x.offset());
}

Tensor permuted(const Tensor& x, const Dims& order) {
  Dims shape = x.shape();
  Dims strides = x.strides();
  for (size_t i = 0; i < order.size(); ++i) {
    shape[i] = x.shape()[static_cast<size_t>(order[i])];
    strides[i] = x.strides()[static_cast<size_t>(order[i])];
  }
  return x.view(shape, strides, x.offset());
}

DimsLast::DimsLast(const Dims& tensor_shape, const DimSet& last) {
  for (const bool is_last : {false, true}) {
    for (size_t i = 0; i < tensor_shape.size(); ++i) {
      if (last[i] != is_last) continue;
      order.push_back(static_cast<int64_t>(i));
      shape.push_back(tensor_shape[i]);
      (is_last ? count : rows) *= tensor_shape[i];
    }
  }
}

Tensor DimsLast::scatter(const Tensor& matrix) const {
  Dims inverse = order;
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return in_order(matrix, inverse);
}

Tensor zero_tensor(Dtype dtype, const Dims& shape) {
  Tensor out = Tensor::empty(dtype, shape);
  if (out.count() > 0) std::memset(out.mutable_data(), 0, out.byte_size());
  return out;
}

void write_part(Tensor& target, const Tensor& part, const Tensor& x) {
  if (x.count() == 0) return;
  size_t item_size = dtype_size(target.dtype());
  std::byte* out = target.mutable_data() + static_cast<size_t>(part.offset()) * item_size;
  copy_strided(out, part.strides(), x.data(), x.strides(), x.shape(), item_size);
}

Slabs::Slabs(const Dims& shape, size_t dim) : size(shape[dim]) {
  for (size_t d = 0; d < dim; ++d) outer *= shape[d];
  for (size_t d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
}

int64_t joined_size(const char* op, int64_t a, int64_t b) {
  int64_t size = 0;
  if (__builtin_add_overflow(a, b, &size)) {
    fail(Status::kInvalidArgument, "{}: sizes {} and {} together are more than memory can hold", op, a, b);
  }
  return size;
}

bool strides_for_shape(const Tensor& x, const Dims& shape, Dims& out_strides) {
  require(element_count(shape) == x.count(), "{} has {} elements and does not fit shape {}", x, x.count(), shape);
  if (x.is_contiguous()) {
    out_strides = row_major_strides(shape);
    return true;
  }
  // Runs of old dims without gaps may be split and joined freely; no new dim may cross a gap. A tensor without elements
  // is contiguous, so all sizes here are positive.
  out_strides = Dims();
  out_strides.resize(shape.size());
  size_t old_dim = x.rank();
  size_t new_dim = shape.size();
  while (old_dim > 0) {
    int64_t stride = x.strides()[--old_dim];
    int64_t run = x.shape()[old_dim];
    if (run == 1) continue;
    while (old_dim > 0 && (x.shape()[old_dim - 1] == 1 || x.strides()[old_dim - 1] == stride * run)) {
      run *= x.shape()[--old_dim];
    }
    int64_t left = run;
    while (new_dim > 0 && (left > 1 || shape[new_dim - 1] == 1)) {
      if (left % shape[new_dim - 1] != 0) return false;
      out_strides[--new_dim] = stride * (run / left);
      left /= shape[new_dim];
    }
    if (left != 1) return false;
  }
  while (new_dim > 0) out_strides[--new_dim] = 1;
  return true;
}

Tensor with_shape(const Tensor& x, const Dims& shape) {
  if (x.shape() == shape) return x;
  Dims strides;
  if (strides_for_shape(x, shape, strides)) return x.view(shape, strides, x.offset());
  Tensor copy = x.clone();
  return copy.view(shape, row_major_strides(shape), 0);
}

Tensor sliced(const Tensor& x, size_t dim, int64_t start, int64_t count, int64_t step) {
  Dims shape = x.shape();
  Dims strides = x.strides();
  // Strides of a tensor without elements may have any value.
  const bool has_elements = x.count() > 0;
  const int64_t offset = x.offset() + (has_elements && count > 0 ? start * strides[dim] : 0);
  if (has_elements && step < shape[dim]) strides[dim] *= step;
  shape[dim] = count;
  return x.view(shape, strides, offset);
}

}  // namespace distag::ops
