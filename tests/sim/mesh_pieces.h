#pragma once

// The pieces of programs over meshes: square matrices, the ways in which they lie, and ops by their names.
#include <cstdint>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/clock.h"
#include "ops/attributes.h"
#include "ops/op.h"

namespace distag::sim {

inline constexpr int64_t kSize = 5;
inline constexpr Nanos kLongest = 600 * kSecond;
inline constexpr Nanos kMeshTimeout = 10 * kSecond;

inline const std::vector<const char*> kSpecs = {"(None, None)", "('x', None)", "(None, 'x')"};

inline Tensor matrix(int64_t seed) {
  Tensor tensor = Tensor::empty(Dtype::kFloat64, {kSize, kSize});
  for (int64_t i = 0; i < tensor.count(); ++i) {
    tensor.mutable_data_as<double>()[i] = static_cast<double>((i * 7919 + seed * 104729) % 1009) / 1009 - 0.5;
  }
  return tensor;
}

inline Tensor parameter(int64_t seed) {
  Tensor tensor = matrix(seed);
  autograd::set_requires_grad(tensor, true);
  return tensor;
}

inline Tensor apply(const std::string& op, const Tensors& inputs, const ops::Attributes& attributes = {}) {
  return autograd::apply(*ops::find_op(op), inputs, attributes)[0];
}

}  // namespace distag::sim
