#include "spmd/programs.h"

#include <cmath>

#include "autograd/autograd.h"

namespace distag::testing {

Tensor numbers(const Dims& shape, int64_t seed) {
  Tensor tensor = Tensor::empty(Dtype::kFloat64, shape);
  for (int64_t i = 0; i < tensor.count(); ++i) {
    tensor.mutable_data_as<double>()[i] = std::sin(static_cast<double>(i * 37 + seed * 101)) / 2;
  }
  return tensor;
}

Tensor apply(const char* op, const Tensors& inputs, const ops::Attributes& attributes) {
  return autograd::apply(*ops::find_op(op), inputs, attributes)[0];
}

MeshPolicy refusing() {
  MeshPolicy policy;
  policy.hidden_moves = MeshPolicy::HiddenMoves::kRefuse;
  return policy;
}

}  // namespace distag::testing
