#pragma once

#include <memory>
#include <vector>

#include "autograd/autograd.h"
#include "ops/op.h"

namespace distag::spmd {

class TracedOp;

// An input of a traced op: a result of another traced op, or a leaf, which is any tensor that no traced op made. With
// neither, the input was left out.
struct TracedInput {
  std::shared_ptr<TracedOp> maker;
  uint32_t output = 0;
  Tensor leaf;
};

// An application of a built-in op to shapes: recorded, never run. Immutable once made. Programs of any length are
// freed iteratively, without memory.
class TracedOp {
 public:
  TracedOp(const ops::Op& op, ops::Attributes attributes, std::vector<TracedInput> inputs, std::vector<Dims> shapes,
           std::vector<Dtype> dtypes, bool is_recorded);
  ~TracedOp();
  TracedOp(const TracedOp&) = delete;
  TracedOp& operator=(const TracedOp&) = delete;

  const ops::Op& op() const { return op_; }
  const ops::Attributes& attributes() const { return attributes_; }
  const std::vector<TracedInput>& inputs() const { return inputs_; }
  const std::vector<Dims>& shapes() const { return shapes_; }  // of its results
  const std::vector<Dtype>& dtypes() const { return dtypes_; }
  // Whether results require grad.
  bool is_recorded() const { return is_recorded_; }
  // Ascending in the order in which a thread applies ops.
  uint64_t number() const { return number_; }

 private:
  const ops::Op& op_;
  const ops::Attributes attributes_;
  std::vector<TracedInput> inputs_;  // emptied only by the destructor
  const std::vector<Dims> shapes_;
  const std::vector<Dtype> dtypes_;
  const bool is_recorded_;
  const uint64_t number_;
  std::shared_ptr<TracedOp> freed_after_;  // for the destructor: the op to free after this one's inputs
};

// The slot of a tensor that is a shape only.
class ShapeOnly final : public autograd::OpPlace {
 public:
  // `maker`: the op that it is a result of; nullptr for a leaf.
  ShapeOnly(Dtype dtype, const Dims& shape, std::shared_ptr<TracedOp> maker, uint32_t output)
      : dtype_(dtype), shape_(shape), maker_(std::move(maker)), output_(output) {}

  // nullptr for any other tensor.
  static const ShapeOnly* of(const Tensor& tensor);

  const std::shared_ptr<TracedOp>& maker() const { return maker_; }
  uint32_t output() const { return output_; }

  Tensor local() const override { refuse(); }
  Tensor snapshot() const override { refuse(); }
  Tensor alias() const override;
  Tensor like(Tensor) const override { refuse(); }
  Tensor whole() const override { refuse(); }
  std::string describe() const override { return "a shape without elements"; }
  bool counts_here() const override { return false; }
  bool is_partial() const override { return false; }
  const void* mesh() const override { return nullptr; }
  double sum_over_members(double, Nanos) const override { refuse(); }
  Tensors apply(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                bool record) override;

 private:
  [[noreturn]] void refuse() const;

  const Dtype dtype_;
  const Dims shape_;
  const std::shared_ptr<TracedOp> maker_;
  const uint32_t output_;
};

// A leaf. Throws INVALID_ARGUMENT beyond 2^55 bytes, so that costs of moves can be counted.
Tensor make_shape_only(Dtype dtype, const Dims& shape);

// Records an op of which some input is a shape only. Other inputs may be any tensors within that limit; no elements are
// read. Arguments are checked. Throws as the op would for shapes and dtypes; UNSUPPORTED if the shape of a result
// depends on elements.
Tensors trace_op(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes, bool record);

}  // namespace distag::spmd
