#include "autograd/recorded_step.h"

#include <algorithm>

#include "autograd/autograd.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"

namespace distag::autograd {

using ops::make_attributes;

Tensor RecordedStep::input(size_t input, const Tensor& kept) const {
  const Edge& edge = inputs_[input];
  if (edge.node == nullptr) return kept;
  const Dtype dtype = input < saved_.dtypes.size() ? saved_.dtypes[input] : kept.dtype();
  const Tensor value = detach(ops::as_dtype(kept, dtype));
  set_history(value, edge);
  return recorded::cast(value, kept.dtype());
}

Tensor RecordedStep::output(const Tensor& kept) const {
  const Tensor value = detach(kept);
  set_history(value, output_);
  return value;
}

Tensor RecordedStep::gradient_of(size_t input, const Tensor& gradient) const {
  return recorded::sum_to(gradient, saved_.shapes[input], saved_.dtypes[input]);
}

RecordedBackward find_recorded_backward(const ops::Op& op) {
  for (const auto list : {recorded::arithmetic_ops, recorded::curve_ops, recorded::shape_ops, recorded::reduction_ops,
                          recorded::product_ops, recorded::indexing_ops, recorded::loss_ops, recorded::norm_ops}) {
    for (const RecordedOp& one : list()) {
      if (one.op == &op) return one.backward;
    }
  }
  return nullptr;
}

namespace recorded {

Tensor call(const ops::Op& op, const Tensors& inputs, const ops::Attributes& attributes) {
  return apply(op, inputs, attributes)[0];
}

Tensor add(const Tensor& a, const Tensor& b) { return call(ops::kAdd, {a, b}); }
Tensor sub(const Tensor& a, const Tensor& b) { return call(ops::kSub, {a, b}); }
Tensor mul(const Tensor& a, const Tensor& b) { return call(ops::kMul, {a, b}); }
Tensor div(const Tensor& a, const Tensor& b) { return call(ops::kDiv, {a, b}); }
Tensor neg(const Tensor& x) { return call(ops::kNeg, {x}); }
Tensor plus(const Tensor& x, double number) { return call(ops::kAddScalar, {x}, make_attributes({{"value", number}})); }
Tensor times(const Tensor& x, double number) {
  return call(ops::kMulScalar, {x}, make_attributes({{"value", number}}));
}
Tensor where(const Tensor& mask, const Tensor& x, const Tensor& y) { return call(ops::kWhere, {mask, x, y}); }

Tensor cast(const Tensor& x, Dtype dtype) {
  return x.dtype() == dtype ? x : call(ops::kCast, {x}, make_attributes({{"dtype", dtype}}));
}

Tensor reshape(const Tensor& x, const Dims& shape) {
  return x.shape() == shape ? x : call(ops::kReshape, {x}, make_attributes({{"shape", shape}}));
}

Tensor expand(const Tensor& x, const Dims& shape) {
  return x.shape() == shape ? x : call(ops::kExpand, {x}, make_attributes({{"shape", shape}}));
}

Tensor transpose(const Tensor& x, size_t dim0, size_t dim1) {
  return call(ops::kTranspose, {x},
              make_attributes({{"dim0", static_cast<int64_t>(dim0)}, {"dim1", static_cast<int64_t>(dim1)}}));
}

Tensor matmul(const Tensor& a, const Tensor& b) { return call(ops::kMatmul, {a, b}); }

Tensor part(const Tensor& x, size_t dim, int64_t start, int64_t count) {
  return call(ops::kSlice, {x},
              make_attributes({{"dim", static_cast<int64_t>(dim)}, {"start", start}, {"stop", start + count}}));
}

Tensor sum_along(const Tensor& x, const Dims& dims) {
  return dims.empty() ? x : call(ops::kSum, {x}, make_attributes({{"dims", dims}, {"keepdim", true}}));
}

Tensor sum_to(const Tensor& x, const Dims& shape, Dtype dtype) {
  if (x.shape() == shape) return cast(x, dtype);
  const size_t lead = x.rank() - shape.size();
  Dims dims;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i < lead || (shape[i - lead] == 1 && x.shape()[i] != 1)) dims.push_back(static_cast<int64_t>(i));
  }
  return cast(reshape(sum_along(x, dims), shape), dtype);
}

Tensor number_like(const Tensor& x, double number) { return Tensor::scalar(x.dtype(), number); }

Tensor repeated(const Tensor& x, double number) { return ops::broadcast_to(number_like(x, number), x.shape()); }

Tensor slope_of(const ops::Op& op, const ops::Saved& saved, const Tensor& x) {
  return op.backward(saved, {repeated(x, 1.0)})[0];
}

}  // namespace recorded
}  // namespace distag::autograd
