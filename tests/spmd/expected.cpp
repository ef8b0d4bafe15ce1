#include "spmd/expected.h"

#include "ops/op.h"

namespace distag::testing {

Tensor weights_like(const Tensor& output) {
  if (!is_floating(output.dtype())) return output;  // indices: not read
  Tensor weights = Tensor::empty(output.dtype(), output.shape());
  for (int64_t i = 0; i < weights.count(); ++i) {
    weights.mutable_data_as<double>()[i] = 0.3 + 0.17 * static_cast<double>((i * 5) % 11);
  }
  return weights;
}

Expected expected_of(const Sample& sample) {
  const ops::Op& op = *ops::find_op(sample.op);
  ops::Saved saved;
  saved.needed = ~uint64_t{0};
  ops::check_arguments(op, sample.inputs, sample.attributes);
  Expected expected;
  expected.outputs = op.forward(sample.inputs, sample.attributes, &saved);
  if (op.backward == nullptr || !is_floating(expected.outputs[0].dtype())) return expected;
  Tensors seeds;
  for (const Tensor& output : expected.outputs) seeds.push_back(weights_like(output));
  expected.gradients = op.backward(saved, std::move(seeds));
  expected.gradients.resize(sample.inputs.size());
  return expected;
}

}  // namespace distag::testing
