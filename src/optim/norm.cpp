#include "optim/norm.h"

#include <cmath>

#include "base/error.h"
#include "ops/dispatch.h"
#include "ops/simd.h"
#include "optim/local_optimizer.h"

namespace distag::optim {
namespace {

// Keeps kLanes separate sums, so that additions do not wait for each other. The order of additions is the same for
// every instruction set.
template <typename T, bool kIsScaled>
struct SquareRow {
  static constexpr int64_t kLanes = 16;
  DISTAG_INLINE static void run(const T* x, int64_t count, double* out) {
    constexpr double kScale = kIsScaled ? 0x1p-600 : 1.0;
    double sums[kLanes] = {};
    const int64_t whole = count - count % kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        const auto value = static_cast<double>(x[i + lane]) * kScale;
        sums[lane] += value * value;
      }
    }
    for (int64_t i = whole; i < count; ++i) {
      const auto value = static_cast<double>(x[i]) * kScale;
      sums[i - whole] += value * value;
    }
    for (double sum : sums) *out += sum;
  }
};

template <bool kIsScaled>
double sum_of(const Tensor& tensor) {
  if (!tensor || tensor.count() == 0) return 0.0;
  const Tensor values = tensor.contiguous();
  double sum = 0.0;
  ops::dispatch_floating("clip", values.dtype(), [&]<typename T>(T) {
    ops::simd::run<SquareRow<T, kIsScaled>, const T*, int64_t, double*>(values.data_as<T>(), values.count(), &sum);
  });
  return sum;
}

}  // namespace

bool SquareSum::is_finite() const { return std::isfinite(sum); }

double SquareSum::root() const { return is_finite() ? std::sqrt(sum) : std::sqrt(scaled) * 0x1p600; }

SquareSum square_sum(const Tensor& tensor) {
  const SquareSum plain(sum_of<false>(tensor));
  return plain.is_finite() ? plain : SquareSum(plain.sum, sum_of<true>(tensor));
}

SquareSum square_sum(const LocalOptimizer& local, const Gradients& gradients) {
  SquareSum all;
  for (const Tensor& parameter : local.parameters()) {
    if (const Tensor* gradient = gradients.find(parameter)) all += square_sum(*gradient);
  }
  return all;
}

double clip_factor(double norm, double max_norm) {
  if (!(max_norm >= 0.0)) {
    fail(Status::kInvalidArgument, "clip: max_norm is {}, but must be a number of at least 0", max_norm);
  }
  if (!std::isfinite(norm)) {
    fail(Status::kInvalidState, "clip: the norm of the gradients is {}; none of them was scaled", norm);
  }
  return norm <= max_norm ? 1.0 : max_norm / norm;
}

}  // namespace distag::optim
