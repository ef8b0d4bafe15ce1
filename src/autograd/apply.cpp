#include <algorithm>

#include "autograd/autograd.h"
#include "autograd/recordable.h"
#include "autograd/recorded_step.h"
#include "base/error.h"
#include "tensor/access.h"
#include "tensor/shape_only.h"

namespace distag::autograd {
namespace {

// The sizes of the inputs and outputs of an application.
struct Sizes {
  bool is_small = true;  // every tensor is small
  size_t bytes = 0;

  void add(std::span<const Tensor> tensors) {
    for (const Tensor& tensor : tensors) {
      if (!tensor) continue;
      is_small = is_small && tensor.byte_size() <= kSmallTensor;
      bytes += tensor.byte_size();
    }
  }
};

struct OpSaved final : Node::SavedData {
  ops::Saved values;
};

// An application of a built-in op.
class OpNode final : public Node, public RecordableNode {
 public:
  OpNode(const ops::Op& op, std::vector<Edge> next, uint32_t slots, Sizes sizes)
      : Node(Kind::kFunction, std::move(next), slots), op_(op), sizes_(sizes) {}
  std::string name() const override { return op_.name; }
  size_t cost() const override {
    if (sizes_.is_small && op_.is_cheap) return 0;
    return op_.is_one_pass ? sizes_.bytes : kTakesLong;
  }
  Tensors backward(SavedData& saved, Tensors gradients) override {
    return run_backward(static_cast<OpSaved&>(saved).values, std::move(gradients));
  }
  bool is_recordable() const override { return find_recorded_backward(op_) != nullptr; }
  Tensors recorded_backward(const Edge& output, SavedData& saved, Tensors gradients) override {
    const RecordedStep step(static_cast<OpSaved&>(saved).values, next(), output);
    Tensors result = find_recorded_backward(op_)(step, gradients);
    result.resize(next().size());
    return result;
  }
  bool is_separable() const override { return !sizes_.is_small && op_.is_separable; }
  Tensors backward_of(SavedData& saved, Tensors gradients, uint64_t inputs) override {
    ops::Saved part = static_cast<OpSaved&>(saved).values;
    part.needed &= inputs;
    return run_backward(part, std::move(gradients));
  }
  // For small tensors a look-up of the sums so far costs more than adding to them.
  bool adds() const override { return !sizes_.is_small && op_.backward_onto != nullptr; }
  Tensors backward_onto(SavedData& saved, Tensors gradients, Tensors sums) override {
    return op_.backward_onto(static_cast<OpSaved&>(saved).values, std::move(gradients), std::move(sums));
  }

 private:
  Tensors run_backward(const ops::Saved& saved, Tensors gradients) const {
    Tensors result = op_.backward(saved, std::move(gradients));
    result.resize(next().size());  // inputs left out at the end have no gradient
    return result;
  }

  const ops::Op& op_;
  const Sizes sizes_;
};

uint64_t needed_inputs(std::span<const Tensor> inputs) {
  uint64_t needed = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (requires_grad(inputs[i])) needed |= uint64_t{1} << (i < 64 ? i : 63);
  }
  return needed;
}

// An op that has nothing to do may give its input back: the result is another tensor all the same, since it gets a
// history of its own.
void separate(Tensors& outputs, std::span<const Tensor> inputs) {
  for (Tensor& output : outputs) {
    for (const Tensor& input : inputs) {
      if (input && output && input.id() == output.id()) output = detach(output);
    }
  }
}

Tensors run_forward(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                    ops::Saved* saved) {
  const HeldTensors held(inputs);
  Tensors outputs = op.forward(held.all(), attributes, saved);
  separate(outputs, inputs);
  // Views follow the writes of their storage.
  for (Tensor& output : outputs) output.drop_hold();
  return outputs;
}

void set_histories(const Tensors& outputs, const std::shared_ptr<Node>& node) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] && is_floating(outputs[i].dtype())) set_history(outputs[i], Edge{node, static_cast<uint32_t>(i)});
  }
}

std::vector<Edge> edges_of(std::span<const Tensor> inputs) {
  std::vector<Edge> edges;
  edges.reserve(inputs.size());
  for (const Tensor& input : inputs) edges.push_back(gradient_edge(input));
  return edges;
}

struct CustomSaved final : Node::SavedData {
  explicit CustomSaved(CustomOp o) : op(std::move(o)) {}
  CustomOp op;
};

// An application of a custom op of the host.
class CustomNode final : public Node {
 public:
  CustomNode(std::string name, std::span<const Tensor> inputs, uint32_t slots)
      : Node(Kind::kFunction, edges_of(inputs), slots), name_(std::move(name)) {
    for (const Tensor& input : inputs) {
      shapes_.push_back(input ? input.shape() : Dims());
      dtypes_.push_back(input ? input.dtype() : Dtype::kFloat32);
    }
  }
  std::string name() const override { return name_; }
  bool is_host_code() const override { return true; }
  Tensors backward(SavedData& saved, Tensors gradients) override {
    // The host may write to the gradients that it gets: snapshots keep those writes from showing elsewhere.
    for (Tensor& gradient : gradients) {
      if (gradient) gradient = gradient.snapshot();
    }
    Tensors result = static_cast<CustomSaved&>(saved).op.backward(std::move(gradients), next().size());
    if (result.size() != next().size()) {
      fail(Status::kInvalidArgument, "gave {} gradients for {} inputs", result.size(), next().size());
    }
    for (size_t i = 0; i < result.size(); ++i) check(result[i], i);
    return result;
  }

 private:
  // A gradient that backward gives is the host's: it comes without history, and later writes to it do not show.
  void check(Tensor& gradient, size_t i) const {
    if (!gradient || next()[i].node == nullptr) return;
    if (gradient.shape() != shapes_[i] || gradient.dtype() != dtypes_[i]) {
      fail(Status::kInvalidArgument, "gave {} as gradient of input {}, which is {}{}", describe(gradient), i,
           dtype_name(dtypes_[i]), to_string(shapes_[i]));
    }
    gradient = gradient.snapshot();
  }

  const std::string name_;
  std::vector<Dims> shapes_;
  std::vector<Dtype> dtypes_;
};

}  // namespace

Tensors apply(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes, bool record) {
  ops::check_arguments(op, inputs, attributes);
  const uint64_t needed = record && op.backward != nullptr ? needed_inputs(inputs) : 0;
  ops::check_needed(op, needed);
  for (const Tensor& input : inputs) {
    if (!input || input.shard_slot() == nullptr) continue;
    return static_cast<OpPlace*>(input.shard_slot())->apply(op, inputs, attributes, record);
  }
  if (needed == 0) return run_forward(op, inputs, attributes, nullptr);
  auto saved = std::make_shared<OpSaved>();
  saved->values.needed = needed;
  Tensors outputs = run_forward(op, inputs, attributes, &saved->values);
  Sizes sizes;
  sizes.add(inputs);
  sizes.add(outputs);
  auto node = std::make_shared<OpNode>(op, edges_of(inputs), static_cast<uint32_t>(outputs.size()), sizes);
  node->set_saved(std::move(saved));
  set_histories(outputs, node);
  return outputs;
}

Tensor recorded_output(const ops::Op& op, ops::Saved saved, std::vector<Edge> inputs, const Tensor& value) {
  const auto leads_on = [](const Edge& edge) { return edge.node != nullptr; };
  if (std::none_of(inputs.begin(), inputs.end(), leads_on)) return value;
  Sizes sizes;
  sizes.add({&value, 1});
  auto node = std::make_shared<OpNode>(op, std::move(inputs), 1, sizes);
  auto kept = std::make_shared<OpSaved>();
  kept->values = std::move(saved);
  node->set_saved(std::move(kept));
  const Tensors outputs = {detach(value)};
  set_histories(outputs, node);
  return outputs[0];
}

Tensors apply_custom(CustomOp op, std::span<const Tensor> inputs, size_t output_count) {
  Tensors detached;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i] || inputs[i].shard_slot() == nullptr) continue;
    if (is_shape_only(inputs[i])) {
      fail(Status::kUnsupported, "custom op \"{}\": input {}, {}, is a shape without elements: built-in ops take those",
           op.name, i, describe(inputs[i]));
    }
    fail(Status::kInvalidArgument,
         "custom op \"{}\": input {}, {}, is sharded: give it this member's own part (to_local)", op.name, i,
         describe(inputs[i]));
  }
  for (const Tensor& input : inputs) detached.push_back(input ? detach(input) : Tensor());
  Tensors outputs = op.forward(detached, output_count);
  if (outputs.size() != output_count) {
    fail(Status::kInvalidArgument, "custom op \"{}\": forward gave {} outputs, not {}", op.name, outputs.size(),
         output_count);
  }
  for (const Tensor& output : outputs) {
    if (!output) fail(Status::kInvalidArgument, "custom op \"{}\": forward left an output out", op.name);
    if (requires_grad(output)) {
      fail(Status::kInvalidArgument,
           "custom op \"{}\": an output is not a new tensor: it has a history, or asks for "
           "gradients",
           op.name);
    }
  }
  separate(outputs, detached);
  for (Tensor& output : outputs) {
    // An output that once required grad still has a grad slot: a new tensor has none.
    if (output.grad_slot() != nullptr) output = detach(output);
  }
  if (!op.backward || needed_inputs(inputs) == 0) return outputs;
  auto node = std::make_shared<CustomNode>(op.name, inputs, static_cast<uint32_t>(output_count));
  node->set_saved(std::make_shared<CustomSaved>(std::move(op)));
  set_histories(outputs, node);
  return outputs;
}

}  // namespace distag::autograd
