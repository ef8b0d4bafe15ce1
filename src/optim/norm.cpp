#include "optim/norm.h"

#include <cmath>

#include "base/error.h"
#include "ops/dispatch.h"
#include "ops/simd.h"

namespace distag::optim {
namespace {

// Keeps kLanes separate sums, so that additions do not wait for each other. The order of additions is the same for
// every instruction set.
template <typename T>
struct SquareSum {
  static constexpr int64_t kLanes = 16;
  DISTAG_INLINE static void run(const T* x, int64_t count, double* out) {
    double sums[kLanes] = {};
    const int64_t whole = count - count % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const auto value = static_cast<double>(x[i + lane]);
        sums[lane] += value * value;
      }
    }
    for (int64_t i = whole; i < count; ++i) {
      const auto value = static_cast<double>(x[i]);
      sums[i - whole] += value * value;
    }
    for (double sum : sums) *out += sum;
  }
};

}  // namespace

double square_norm(const Tensor& tensor) {
  if (!tensor || tensor.count() == 0) return 0.0;
  const Tensor values = tensor.contiguous();
  double sum = 0.0;
  ops::dispatch_floating("clip", values.dtype(), [&]<typename T>(T) {
    ops::simd::run<SquareSum<T>, const T*, int64_t, double*>(values.data_as<T>(), values.count(), &sum);
  });
  return sum;
}

double clip_factor(double norm, double max_norm) {
  if (!(max_norm >= 0.0)) {
    fail(Status::kInvalidArgument, "clip: max_norm is {}, but must be a number of at least 0", max_norm);
  }
  if (!std::isfinite(norm)) {
    fail(Status::kInvalidState,
         "clip: the norm of the gradients, from the sum of their squares, is {}; none of them was scaled", norm);
  }
  return norm <= max_norm ? 1.0 : max_norm / norm;
}

}  // namespace distag::optim
