#pragma once

#include "autograd/context.h"
#include "tensor/tensor.h"

namespace distag::optim {

class LocalOptimizer;

// A sum of squares. A second sum, of the elements times 2^-600, does not overflow where the first one does.
struct SquareSum {
  double sum = 0.0;
  double scaled = 0.0;

  SquareSum() = default;
  explicit SquareSum(double plain) : SquareSum(plain, plain * 0x1p-600 * 0x1p-600) {}
  SquareSum(double plain, double times_scale) : sum(plain), scaled(times_scale) {}
  SquareSum& operator+=(const SquareSum& more) {
    sum += more.sum;
    scaled += more.scaled;
    return *this;
  }

  bool is_finite() const;
  // The square root of the sum.
  double root() const;
};

// The squares of all elements; 0 for an undefined tensor. Throws INVALID_STATE for a sharded one.
SquareSum square_sum(const Tensor& tensor);
// The squares of the gradients of its parameters.
SquareSum square_sum(const LocalOptimizer& local, const Gradients& gradients);

// The factor for gradients of this joint norm, at most 1. Throws INVALID_STATE when the norm is not finite,
// INVALID_ARGUMENT when max_norm is not a number of at least 0.
double clip_factor(double norm, double max_norm);

}  // namespace distag::optim
