#pragma once

#include <span>

#include "autograd/node.h"
#include "ops/op.h"

namespace distag::autograd {

// An application of an op as its recorded backward sees it: what forward saved, with the history that inputs and output
// had. A tensor with history is a new one over the saved values, so that the saved data itself never has a history.
class RecordedStep {
 public:
  // `output`: where gradients of output 0 go.
  RecordedStep(const ops::Saved& saved, std::span<const Edge> inputs, Edge output)
      : saved_(saved), inputs_(inputs), output_(std::move(output)) {}

  const ops::Saved& saved() const { return saved_; }
  size_t input_count() const { return inputs_.size(); }
  bool needs(size_t input) const { return saved_.needs(input); }
  const Edge& edge(size_t input) const { return inputs_[input]; }

  // `kept`: the saved values of an input, in the shape of the input, maybe promoted.
  Tensor input(size_t input, const Tensor& kept) const;
  Tensor input(size_t input) const { return this->input(input, saved_.tensors[input]); }
  // `kept`: the saved values of output 0.
  Tensor output(const Tensor& kept) const;
  // The gradient of an input that was broadcast and promoted, as save_kinds() has kept its shape and dtype.
  Tensor gradient_of(size_t input, const Tensor& gradient) const;

 private:
  const ops::Saved& saved_;
  const std::span<const Edge> inputs_;
  const Edge output_;
};

// Computes the gradient of each input from those of the outputs (at least one is defined). Values that depend on an
// input, output or gradient come from recorded ops alone. Equals Op::backward. May leave out those of the last inputs.
using RecordedBackward = Tensors (*)(const RecordedStep& step, const Tensors& gradients);

struct RecordedOp {
  const ops::Op* op;
  RecordedBackward backward;
};

// nullptr: the op has none.
RecordedBackward find_recorded_backward(const ops::Op& op);

// The output of an application that was never made, as if `op` had given `value` and kept `saved`.
Tensor recorded_output(const ops::Op& op, ops::Saved saved, std::vector<Edge> inputs, const Tensor& value);

// Short forms of recorded ops, and the lists of recorded backwards, by file.
namespace recorded {

std::span<const RecordedOp> arithmetic_ops();
std::span<const RecordedOp> curve_ops();
std::span<const RecordedOp> shape_ops();
std::span<const RecordedOp> reduction_ops();
std::span<const RecordedOp> product_ops();
std::span<const RecordedOp> indexing_ops();
std::span<const RecordedOp> loss_ops();
std::span<const RecordedOp> norm_ops();

Tensor call(const ops::Op& op, const Tensors& inputs, const ops::Attributes& attributes = {});
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor neg(const Tensor& x);
Tensor plus(const Tensor& x, double number);
Tensor times(const Tensor& x, double number);
// x where the mask holds, else y.
Tensor where(const Tensor& mask, const Tensor& x, const Tensor& y);
Tensor cast(const Tensor& x, Dtype dtype);
Tensor reshape(const Tensor& x, const Dims& shape);
Tensor expand(const Tensor& x, const Dims& shape);
Tensor transpose(const Tensor& x, size_t dim0, size_t dim1);
Tensor matmul(const Tensor& a, const Tensor& b);
// Elements start, start + 1, ... of a dim.
Tensor part(const Tensor& x, size_t dim, int64_t start, int64_t count);
// The sum over these dims, which stay with size 1.
Tensor sum_along(const Tensor& x, const Dims& dims);
// `x` summed and cast back to a shape and dtype from which it was broadcast and promoted.
Tensor sum_to(const Tensor& x, const Dims& shape, Dtype dtype);

// Constants: without history, like all that is computed from them alone.
Tensor number_like(const Tensor& x, double number);  // 0-d, of x's dtype
Tensor repeated(const Tensor& x, double number);     // in x's shape and dtype, with strides of 0
// Op::backward for gradients of 1 in x's shape: the slope of an op that is linear in pieces.
Tensor slope_of(const ops::Op& op, const ops::Saved& saved, const Tensor& x);

}  // namespace recorded
}  // namespace distag::autograd
