#include "ops/blas.h"

#include <cblas.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fork_gate.h"
#include "base/linked_function.h"
#include "base/process_state.h"
#include "base/threaded_library.h"

namespace distag::ops {
namespace {

// Names by which the parts of an OpenBLAS call each other: if another OpenBLAS exported them, its internals would be
// called.
constexpr std::array kInside = {"gotoblas", "exec_blas", "blas_memory_alloc", "blas_memory_free"};

// Checks [1 2; 3 4] times itself, with the left factor transposed.
template <typename T, typename Product>
bool multiplies(Product* product) {
  constexpr std::array<T, 4> matrix = {1, 2, 3, 4};
  std::array<T, 4> out = {};
  product(CblasRowMajor, CblasTrans, CblasNoTrans, 2, 2, 2, T(1), matrix.data(), 2, matrix.data(), 2, T(0), out.data(),
          2);
  return out == std::array<T, 4>{10, 14, 14, 20};
}

// Debian's build for x86-64 allocates blocks of 128 MiB.
constexpr std::array kThreadVariables = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"};
constinit ThreadedLibrary library({"libopenblas.so.0", kThreadVariables, size_t{128} << 20});

// Set while distag is being loaded.
struct Functions {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&cblas_dgemm) dgemm = nullptr;
  decltype(&openblas_get_config) get_config = nullptr;
  decltype(&openblas_get_num_threads) get_num_threads = nullptr;
};
constinit Functions functions;

template <typename Function>
void find(const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(library.find(name));
}

[[gnu::constructor(101)]] void load() {
  library.load();
  find("cblas_sgemm", functions.sgemm);
  find("cblas_dgemm", functions.dgemm);
  find("openblas_get_config", functions.get_config);
  find("openblas_get_num_threads", functions.get_num_threads);
}

[[gnu::destructor(101)]] void unload() { library.unload(); }

constinit std::atomic<bool> is_checked{false};

// Makes OpenBLAS allocate its block of memory and start its threads now: smaller products may do neither.
void make_ready() {
  constexpr int kSize = 128;
  std::vector<float> matrix(size_t{kSize} * kSize);
  std::vector<float> out(matrix.size());
  functions.sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, kSize, kSize, kSize, 1, matrix.data(), kSize,
                  matrix.data(), kSize, 0, out.data(), kSize);
}

void check_blas(uint64_t forks) {
  if (*library.lack() != '\0') {
    fail(Status::kUnsupported, "matrices are not multiplied without OpenBLAS, which was not loaded with distag: {}",
         library.lack());
  }
  const auto address = [](auto* function) { return reinterpret_cast<void*>(function); };
  const auto refuse = [&address](std::string_view why) {
    fail(Status::kUnsupported,
         "matrices are not multiplied by {}: {}; link the BLAS of the host so that it does not export its names "
         "(docs/embedding.md)",
         file_of(address(functions.sgemm)), why);
  };
  if (!lie_together(address(functions.sgemm), address(functions.get_config)) ||
      !lie_together(address(functions.dgemm), address(functions.get_config))) {
    refuse("it is not the OpenBLAS that distag was built with");
  }
  if (std::string_view(functions.get_config()).find("USE64BITINT") != std::string_view::npos) {
    refuse("its integers have 64 bits");
  }
  for (const char* name : kInside) {
    if (is_displaced(name, address(functions.sgemm))) {
      refuse(fmt::format("the host exports {} of another OpenBLAS", name));
    }
  }
  if (library.is_space_short() && forks == 0) make_ready();
  if (!multiplies<float>(functions.sgemm) || !multiplies<double>(functions.dgemm)) {
    refuse("its products are wrong");
  }
}

// Threads may check at the same time, with the same result.
void check_blas_once(uint64_t forks) {
  if (is_checked.load(std::memory_order_acquire)) return;
  check_blas(forks);
  is_checked.store(true, std::memory_order_release);
}

// If address space is short, products run one at a time in the block of memory that the first one allocated: without
// room OpenBLAS tries for ever to map another block.
struct OneAtATime {};
constinit ProcessState<OneAtATime> turn;

class ProductRoom {
 public:
  ProductRoom() {
    if (!library.is_space_short()) return;
    turn_.emplace(turn);
    if (is_checked.load(std::memory_order_acquire) || library.has_block()) return;
    fail(Status::kOutOfMemory, "there is no address space for products of matrices: raise ulimit -v by 128 MiB");
  }

 private:
  std::optional<ProcessState<OneAtATime>::Access> turn_;
};

// A fork ends the threads of OpenBLAS in the parent too. OpenBLAS starts them again at a later product, and ends the
// process if it cannot.
struct Revival {};
constinit ProcessState<Revival> revival;
constinit std::atomic<uint64_t> forks_before_threads{0};

void revive_threads(uint64_t forks) {
  if (forks_before_threads.load(std::memory_order_acquire) == forks) return;
  const ProcessState<Revival>::Access alone(revival);
  if (functions.get_num_threads != nullptr && forks_before_threads != forks) {
    if (!library.has_threads(static_cast<size_t>(std::max(functions.get_num_threads(), 1)))) {
      fail(Status::kOutOfMemory,
           "the threads of OpenBLAS ended with a fork, and the system has no room for new ones: raise ulimit -u or -v, "
           "or set OPENBLAS_NUM_THREADS=1");
    }
    make_ready();
  }
  forks_before_threads.store(forks, std::memory_order_release);
}

CBLAS_TRANSPOSE transpose_flag(bool is_transposed) { return is_transposed ? CblasTrans : CblasNoTrans; }

template <typename T, typename Product>
void multiply_by(Product* const& product, int rows, int columns, int inner, const BlasMatrix<T>& a,
                 const BlasMatrix<T>& b, T beta, T* out) {
  const NoFork gate;
  const ProductRoom room;
  check_blas_once(gate.forks());
  revive_threads(gate.forks());
  product(CblasRowMajor, transpose_flag(a.is_transposed), transpose_flag(b.is_transposed), rows, columns, inner, T(1),
          a.data, a.leading, b.data, b.leading, beta, out, columns);
}

}  // namespace

void blas_gemm(int rows, int columns, int inner, const BlasMatrix<float>& a, const BlasMatrix<float>& b, float beta,
               float* out) {
  multiply_by(functions.sgemm, rows, columns, inner, a, b, beta, out);
}

void blas_gemm(int rows, int columns, int inner, const BlasMatrix<double>& a, const BlasMatrix<double>& b, double beta,
               double* out) {
  multiply_by(functions.dgemm, rows, columns, inner, a, b, beta, out);
}

}  // namespace distag::ops
