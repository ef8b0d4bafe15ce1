#pragma once

#include <cstddef>

// Kernels are plain loops that the compiler vectorises. Each loop is compiled for several instruction sets, and the
// best one that the machine has is chosen at run time. No instruction set changes a result: kernels use IEEE operations
// in a fixed order, and the build forbids fusing them (-ffp-contract=off).

// Stands before a loop whose iterations access different elements: an output either equals one of the inputs, element
// by element, or does not overlap with them.
#if defined(__clang__)
// Only a hint: some of these loops call functions that have no vector form.
#pragma clang diagnostic ignored "-Wpass-failed"
#define DISTAG_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DISTAG_INDEPENDENT _Pragma("GCC ivdep")
#endif

// Stands before a loop over few elements that should stay in registers.
#if defined(__clang__)
#define DISTAG_UNROLL _Pragma("clang loop unroll(full)")
#else
#define DISTAG_UNROLL _Pragma("GCC unroll 16")
#endif

#define DISTAG_INLINE [[gnu::always_inline]] inline
// Stands between the parameters and the body of a lambda.
#define DISTAG_INLINE_LAMBDA __attribute__((always_inline))

#if defined(__x86_64__)
#define DISTAG_TARGET_AVX2 [[gnu::target("avx2")]]
#if defined(__clang__)
#define DISTAG_TARGET_AVX512 [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw")]]
#else
#define DISTAG_TARGET_AVX512 [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,prefer-vector-width=512")]]
#endif
#endif

namespace distag::ops::simd {

#if defined(__x86_64__)

template <typename Kernel, typename... Args>
DISTAG_TARGET_AVX2 [[gnu::flatten]] void run_avx2(Args... args) {
  Kernel::run(args...);
}

template <typename Kernel, typename... Args>
DISTAG_TARGET_AVX512 [[gnu::flatten]] void run_avx512(Args... args) {
  Kernel::run(args...);
}

#endif

template <typename Kernel, typename... Args>
[[gnu::flatten]] void run_baseline(Args... args) {
  Kernel::run(args...);
}

enum class Registers { kBaseline, kAvx2, kAvx512 };

// The best instruction set that this machine has.
inline Registers registers() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw")) {
    return Registers::kAvx512;
  }
  if (__builtin_cpu_supports("avx2")) return Registers::kAvx2;
#endif
  return Registers::kBaseline;
}

// A pointer to Kernel::run, compiled for this machine. The three functions above are flattened: all functions that they
// call are inlined into them, as code that is not inlined is compiled for the baseline.
template <typename Kernel, typename... Args>
auto pick() -> void (*)(Args...) {
#if defined(__x86_64__)
  if (registers() == Registers::kAvx512) return &run_avx512<Kernel, Args...>;
  if (registers() == Registers::kAvx2) return &run_avx2<Kernel, Args...>;
#endif
  return &run_baseline<Kernel, Args...>;
}

template <typename Kernel, typename... Args>
void run(Args... args) {
  pick<Kernel, Args...>()(args...);
}

// For kernels that lay their data out in vectors of a fixed size: runs Kernel<bytes> with the widest registers of this
// machine that have at most `most_bytes`.
template <template <size_t> typename Kernel, typename... Args>
void run_in_vectors(size_t most_bytes, Args... args) {
#if defined(__x86_64__)
  if (most_bytes >= 64 && registers() == Registers::kAvx512) return run_avx512<Kernel<64>, Args...>(args...);
  if (most_bytes >= 32 && registers() != Registers::kBaseline) return run_avx2<Kernel<32>, Args...>(args...);
#endif
  run_baseline<Kernel<16>, Args...>(args...);
}

}  // namespace distag::ops::simd
