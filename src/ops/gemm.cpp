#include "ops/gemm.h"

#include <climits>

#include "base/error.h"
#include "ops/blas.h"
#include "ops/broadcast.h"
#include "ops/dispatch.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

int blas_int(int64_t value) {
  if (value > INT_MAX) fail(Status::kUnsupported, "a matrix with a size or stride of {} is too large for BLAS", value);
  return static_cast<int>(value);
}

template <typename T>
void call_gemm(T* out, const T* a, const Matrix& am, const T* b, const Matrix& bm, T beta) {
  blas_gemm(blas_int(am.rows), blas_int(bm.columns), blas_int(am.columns),
            BlasMatrix<T>{a, am.is_transposed, blas_int(am.leading)},
            BlasMatrix<T>{b, bm.is_transposed, blas_int(bm.leading)}, beta, out);
}

int64_t wrapping_sum_of_products(int64_t sum, int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

void call_gemm(int64_t* out, const int64_t* a, const Matrix& am, const int64_t* b, const Matrix& bm, int64_t beta) {
  int64_t a_row = am.is_transposed ? 1 : am.leading;
  int64_t a_column = am.is_transposed ? am.leading : 1;
  int64_t b_row = bm.is_transposed ? 1 : bm.leading;
  int64_t b_column = bm.is_transposed ? bm.leading : 1;
  for (int64_t i = 0; i < am.rows; ++i) {
    int64_t* row = out + i * bm.columns;
    if (beta == 0) std::fill_n(row, bm.columns, 0);
    for (int64_t k = 0; k < am.columns; ++k) {
      int64_t factor = a[i * a_row + k * a_column];
      for (int64_t j = 0; j < bm.columns; ++j) {
        row[j] = wrapping_sum_of_products(row[j], factor, b[k * b_row + j * b_column]);
      }
    }
  }
}

// The dims before the last two.
Dims batch_of(const Dims& shape) { return Dims(std::span<const int64_t>(shape.data(), shape.size() - 2)); }

Tensor batch_view(const Tensor& x, const Dims& batch) {
  Dims shape = batch;
  shape.push_back(x.shape()[x.rank() - 2]);
  shape.push_back(x.shape().back());
  return broadcast_to(x, shape);
}

template <typename T>
void multiply_batches(T* out, const Tensor& a, const Tensor& b, const Dims& batch) {
  Matrix a_matrix;
  Matrix b_matrix;
  as_matrix(a, a_matrix);
  as_matrix(b, b_matrix);
  const T* a_data = a.data_as<T>();
  const T* b_data = b.data_as<T>();
  RowPlan<2> plan(batch, {batch_of(batch_view(a, batch).strides()), batch_of(batch_view(b, batch).strides())});
  plan.for_each_row([&](const std::array<int64_t, 2>& offsets) {
    for (int64_t i = 0; i < plan.row_length; ++i) {
      multiply<T>(out, a_data + offsets[0] + i * plan.row_strides[0], a_matrix,
                  b_data + offsets[1] + i * plan.row_strides[1], b_matrix, T(0));
      out += a_matrix.rows * b_matrix.columns;
    }
  });
}

}  // namespace

bool as_matrix(const Tensor& x, Matrix& matrix) {
  size_t rank = x.rank();
  matrix.rows = x.shape()[rank - 2];
  matrix.columns = x.shape()[rank - 1];
  int64_t row_stride = matrix.rows == 1 ? matrix.columns : x.strides()[rank - 2];
  int64_t column_stride = matrix.columns == 1 ? matrix.rows : x.strides()[rank - 1];
  if ((column_stride == 1 || matrix.columns == 1) && row_stride >= matrix.columns) {
    matrix.is_transposed = false;
    matrix.leading = std::max<int64_t>(row_stride, 1);
    return true;
  }
  if ((row_stride == 1 || matrix.rows == 1) && column_stride >= matrix.rows) {
    matrix.is_transposed = true;
    matrix.leading = std::max<int64_t>(column_stride, 1);
    return true;
  }
  return false;
}

Tensor readable_by_blas(const Tensor& x) {
  Matrix matrix;
  return as_matrix(x, matrix) ? x : x.clone();
}

template <typename T>
void multiply(T* out, const T* a, const Matrix& a_matrix, const T* b, const Matrix& b_matrix, T beta) {
  if (a_matrix.rows == 0 || b_matrix.columns == 0) return;
  if (a_matrix.columns == 0) {
    if (beta == T(0)) std::fill_n(out, a_matrix.rows * b_matrix.columns, T(0));
    return;
  }
  call_gemm(out, a, a_matrix, b, b_matrix, beta);
}

template void multiply<float>(float*, const float*, const Matrix&, const float*, const Matrix&, float);
template void multiply<double>(double*, const double*, const Matrix&, const double*, const Matrix&, double);
template void multiply<int64_t>(int64_t*, const int64_t*, const Matrix&, const int64_t*, const Matrix&, int64_t);

Tensor product(const char* op, const Tensor& a, const Tensor& b) {
  Dims batch = broadcast_shapes(op, batch_of(a.shape()), batch_of(b.shape()));
  Dims shape = batch;
  int64_t rows = a.shape()[a.rank() - 2];
  int64_t inner = a.shape().back();
  shape.push_back(rows);
  shape.push_back(b.shape().back());
  // A single matrix on the right for all batches: the batches on the left become more rows of one product.
  Dims flat{inner == 0 ? 0 : a.count() / inner, inner};
  Dims flat_strides;
  if (a.rank() > 2 && b.rank() == 2 && inner > 0 && strides_for_shape(a, flat, flat_strides)) {
    return with_shape(product(op, a.view(flat, flat_strides, a.offset()), b), shape);
  }
  if (inner == 0) return zero_tensor(a.dtype(), shape);  // without elements there is no address to use
  Tensor out = Tensor::empty(a.dtype(), shape);
  if (out.count() == 0) return out;
  Tensor left = readable_by_blas(a);
  Tensor right = readable_by_blas(b);
  dispatch_numeric(op, a.dtype(),
                   [&]<typename T>(T) { multiply_batches(out.mutable_data_as<T>(), left, right, batch); });
  return out;
}

}  // namespace distag::ops
