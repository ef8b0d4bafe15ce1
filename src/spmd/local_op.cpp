#include "spmd/local_op.h"

#include <algorithm>

#include "ops/attributes.h"
#include "spmd/part_ops.h"
#include "spmd/run_op.h"
#include "tensor/access.h"

namespace distag::spmd {
namespace {

Tensor scaled(const Tensor& x, double factor) {
  return run_op("mul_scalar", {x}, ops::make_attributes({{"value", factor}}));
}

}  // namespace

LocalOp::LocalOp(std::shared_ptr<const OpPlan> plan, Tensors inputs, uint64_t needed)
    : plan_(std::move(plan)), inputs_(std::move(inputs)), input_count_(inputs_.size()), scale_(plan_->local.scale) {
  saved_.needed = needed;
}

Tensors LocalOp::run(Across& across) {
  const ops::Op& op = *plan_->op;
  const HeldTensors held(inputs_);
  inputs_.assign(held.all().begin(), held.all().end());
  Tensors inputs = inputs_;
  const auto& apart = plan_->local.added_apart;
  if (apart) inputs[apart->input] = Tensor();
  ops::Saved* const saved = saved_.needed != 0 ? &saved_ : nullptr;
  Tensors outputs;
  if (plan_->part != nullptr) {
    PartOp::Result result = plan_->part->forward({*plan_->local.part, plan_->local.attributes, across}, inputs, saved);
    outputs.push_back(std::move(result.output));
    weights_ = result.weights;
  } else {
    outputs = op.forward(inputs, plan_->local.attributes, saved);
  }
  if (apart && apart->is_first) outputs[0] = run_op("add", {outputs[0], bias_in_place()});
  for (Tensor& output : outputs) {
    // An op that has nothing to do may give its input back: the result must be another tensor.
    for (const Tensor& input : inputs) {
      if (input && output.id() == input.id()) output = output.view(output.shape(), output.strides(), output.offset());
    }
    output.drop_hold();  // views follow the writes of their storage
  }
  return outputs;
}

Tensor LocalOp::bias_in_place() const {
  const auto& apart = *plan_->local.added_apart;
  Dims shape;
  shape.resize(plan_->rule.output_shapes[0].size(), 1);
  shape[apart.dim] = inputs_[apart.input].count();
  return run_op("reshape", {inputs_[apart.input]}, ops::make_attributes({{"shape", shape}}));
}

// A loss with inputs of -1 everywhere adds up the weights.
Tensor LocalOp::weights_of_rows() const {
  if (plan_->part != nullptr) return Tensor::scalar(Dtype::kFloat64, weights_);
  Tensors inputs = inputs_;
  Tensor ones = Tensor::empty(inputs[0].dtype(), inputs[0].shape());
  const Tensor minus = Tensor::scalar(ones.dtype(), -1);
  ops::assign(ones, minus);
  inputs[0] = ones;
  return run_op("cast", {run_op("nll_loss", inputs, plan_->local.attributes)},
                ops::make_attributes({{"dtype", Dtype::kFloat64}}));
}

void LocalOp::scale_outputs(Tensors& outputs, double weights) {
  if (plan_->local.is_over_weights) scale_ = 1 / weights;
  if (scale_ == 1) return;
  for (Tensor& output : outputs) output = scaled(output, scale_);
}

void LocalOp::forget_gathered(const std::vector<Dims>& shapes,
                              const std::vector<std::optional<GatheredParameter>>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]) continue;
    const BufferRef buffer = inputs_[i].buffer();
    bool is_saved = false;
    for (size_t t = 0; t < saved_.tensors.size(); ++t) {
      Tensor& tensor = saved_.tensors[t];
      if (!tensor || tensor.buffer().get() != buffer.get()) continue;
      gathered_.push_back({t, tensor.shape(), tensor.strides(), tensor.offset(), i});
      tensor = Tensor();
      is_saved = true;
    }
    if (!is_saved) continue;
    const Lying& origin = parameters[i]->origin;
    sources_.push_back({i, shapes[i], {{origin.spec, origin.shard.snapshot()}, parameters[i]->spec}});
  }
}

ops::Saved LocalOp::gathered_again(CallOnLine& call) const {
  ops::Saved saved = saved_;
  for (const Source& source : sources_) {
    const Lying& origin = source.parameter.origin;
    const Tensor whole = call.move(source.shape, origin.shard, origin.spec, source.parameter.spec).contiguous();
    for (const Gathered& gathered : gathered_) {
      if (gathered.input != source.input) continue;
      saved.tensors[gathered.tensor] =
          whole.view(gathered.shape, gathered.strides, whole.offset() + gathered.offset).snapshot();
    }
  }
  return saved;
}

Tensors LocalOp::run_backward(Tensors gradients, CallOnLine& call) const {
  const ops::Saved saved = gathered_again(call);
  if (scale_ != 1) {
    for (Tensor& gradient : gradients) {
      if (gradient) gradient = scaled(gradient, scale_);
    }
  }
  const Tensor whole = gradients[0];
  Tensors result;
  if (plan_->part != nullptr && plan_->part->backward != nullptr) {
    AcrossLine across(call, plan_->local.part->merged);
    if (whole) result = plan_->part->backward({*plan_->local.part, plan_->local.attributes, across}, saved, whole);
  } else {
    result = plan_->op->backward(saved, std::move(gradients));
  }
  result.resize(input_count_);
  const auto& apart = plan_->local.added_apart;
  if (!apart || !saved_.needs(apart->input) || !whole) return result;
  Dims others;
  for (size_t d = 0; d < whole.rank(); ++d) {
    if (d != apart->dim) others.push_back(static_cast<int64_t>(d));
  }
  result[apart->input] = others.empty() ? whole : run_op("sum", {whole}, ops::make_attributes({{"dims", others}}));
  return result;
}

}  // namespace distag::spmd
