#include "ops/blas.h"

#include <cblas.h>

#include <array>
#include <atomic>
#include <string_view>

#include "base/error.h"
#include "base/fork_gate.h"
#include "base/linked_function.h"

namespace distag::ops {
namespace {

// Names by which the parts of an OpenBLAS call each other: those of another one would be called with its insides.
constexpr std::array kInside = {"gotoblas", "exec_blas", "blas_memory_alloc", "blas_memory_free"};

// [1 2; 3 4] times itself, the left one transposed.
template <typename T, typename Product>
bool multiplies(Product* product) {
  constexpr std::array<T, 4> matrix = {1, 2, 3, 4};
  std::array<T, 4> out = {};
  product(CblasRowMajor, CblasTrans, CblasNoTrans, 2, 2, 2, T(1), matrix.data(), 2, matrix.data(), 2, T(0), out.data(),
          2);
  return out == std::array<T, 4>{10, 14, 14, 20};
}

constinit const LinkedFunction<decltype(cblas_sgemm)> sgemm{"cblas_sgemm", &cblas_sgemm};
constinit const LinkedFunction<decltype(cblas_dgemm)> dgemm{"cblas_dgemm", &cblas_dgemm};
constinit const LinkedFunction<decltype(openblas_get_config)> get_config{"openblas_get_config", &openblas_get_config};
constinit std::atomic<bool> is_checked{false};

void check_blas() {
  const auto refuse = [](std::string_view why) {
    fail(Status::kUnsupported,
         "matrices are not multiplied by {}: {}; link the BLAS of the host so that it does not export its names "
         "(docs/embedding.md)",
         file_of(sgemm.address()), why);
  };
  if (!lie_together(sgemm.address(), get_config.address()) || !lie_together(dgemm.address(), get_config.address())) {
    refuse("it is not the OpenBLAS that distag was built with");
  }
  if (std::string_view(get_config()).find("USE64BITINT") != std::string_view::npos) {
    refuse("its integers have 64 bits");
  }
  for (const char* name : kInside) {
    if (is_displaced(name, sgemm.address())) {
      refuse(fmt::format("the host exports {} of another OpenBLAS", name));
    }
  }
  if (!multiplies<float>(sgemm.get()) || !multiplies<double>(dgemm.get())) {
    refuse("its products are wrong");
  }
}

// Threads may check side by side, and see the same.
void check_blas_once() {
  if (is_checked.load(std::memory_order_acquire)) return;
  check_blas();
  is_checked.store(true, std::memory_order_release);
}

CBLAS_TRANSPOSE transpose_flag(bool is_transposed) { return is_transposed ? CblasTrans : CblasNoTrans; }

template <typename T, typename Product>
void multiply_by(const Product& product, int rows, int columns, int inner, const BlasMatrix<T>& a,
                 const BlasMatrix<T>& b, T beta, T* out) {
  const NoFork gate;
  check_blas_once();
  product(CblasRowMajor, transpose_flag(a.is_transposed), transpose_flag(b.is_transposed), rows, columns, inner, T(1),
          a.data, a.leading, b.data, b.leading, beta, out, columns);
}

}  // namespace

void blas_gemm(int rows, int columns, int inner, const BlasMatrix<float>& a, const BlasMatrix<float>& b, float beta,
               float* out) {
  multiply_by(sgemm, rows, columns, inner, a, b, beta, out);
}

void blas_gemm(int rows, int columns, int inner, const BlasMatrix<double>& a, const BlasMatrix<double>& b, double beta,
               double* out) {
  multiply_by(dgemm, rows, columns, inner, a, b, beta, out);
}

}  // namespace distag::ops
