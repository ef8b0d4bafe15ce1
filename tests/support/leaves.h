#pragma once

#include <algorithm>
#include <vector>

#include "autograd/autograd.h"
#include "ops/op.h"

// Tensors of float64 that require grad, and what is recorded from them.
namespace distag::testing {

inline Tensor scalar_leaf(double value) {
  Tensor tensor = Tensor::scalar(Dtype::kFloat64, value);
  autograd::set_requires_grad(tensor, true);
  return tensor;
}

inline Tensor leaf(const std::vector<double>& values) {
  Tensor tensor = Tensor::empty(Dtype::kFloat64, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.mutable_data_as<double>());
  autograd::set_requires_grad(tensor, true);
  return tensor;
}

// The only output of an op.
inline Tensor apply(const ops::Op& op, const std::vector<Tensor>& inputs) { return autograd::apply(op, inputs, {})[0]; }

}  // namespace distag::testing
