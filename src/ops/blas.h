#pragma once

namespace distag::ops {

// A matrix as BLAS reads it: row by row, or column by column (transposed).
template <typename T>
struct BlasMatrix {
  const T* data;
  bool is_transposed;
  int leading;  // elements from one row (column) to the next
};

// out = a b + beta out; out is row-major. Uses the OpenBLAS that was loaded with this library, whatever BLAS the host
// exports under the same names. Throws UNSUPPORTED unless that is an OpenBLAS with 32-bit integers whose names no other
// library exports, OUT_OF_MEMORY without address space for its work. Forks wait meanwhile, as a fork would end the
// threads that multiply.
void blas_gemm(int rows, int columns, int inner, const BlasMatrix<float>& a, const BlasMatrix<float>& b, float beta,
               float* out);
void blas_gemm(int rows, int columns, int inner, const BlasMatrix<double>& a, const BlasMatrix<double>& b, double beta,
               double* out);

}  // namespace distag::ops
