#include "spmd/op_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "autograd/autograd.h"
#include "base/error.h"
#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "spmd/local_op.h"
#include "spmd/nodes.h"

namespace distag::spmd {
namespace {

using layout::Move;
using layout::Operand;
using layout::Spec;

// The line of a call with these inputs: a named line goes before the mesh itself.
Line common_line(const char* op, std::span<const Tensor> inputs) {
  const Sharding* first = nullptr;
  for (const Tensor& input : inputs) {
    const Sharding* sharding = Sharding::of(input);
    if (sharding == nullptr) continue;
    if (first == nullptr) first = sharding;
    if (&first->program() != &sharding->program()) {
      fail(Status::kInvalidArgument, "{}: its inputs are sharded over two meshes, \"{}\" and \"{}\": gather one", op,
           first->program().shape().name(), sharding->program().shape().name());
    }
    if (sharding->line().name.empty()) continue;
    if (first->line().name.empty()) first = sharding;
    if (first->line().name != sharding->line().name) {
      fail(Status::kInvalidArgument, "{}: its inputs are of two lines of mesh \"{}\", \"{}\" and \"{}\"", op,
           first->program().shape().name(), first->line().name, sharding->line().name);
    }
  }
  return first->line();
}

Operand operand_of(const char* op, const Tensor& input, size_t i, const std::string& line) {
  Operand operand;
  operand.is_defined = static_cast<bool>(input);
  if (!input) return operand;
  operand.dtype = input.dtype();
  operand.shape = input.shape();
  const Sharding* sharding = Sharding::of(input);
  if (sharding == nullptr && autograd::requires_grad(input)) {
    fail(Status::kInvalidArgument,
         "{}: input {}, {}, is not sharded and requires grad: mark its sharding first, or detach it", op, i,
         describe(input));
  }
  if (sharding != nullptr && sharding->was_partial() && sharding->line().name != line) {
    // Readers on that tensor's own line may sum it, and their calls are not ordered with calls of this line.
    fail(Status::kInvalidArgument, "{}: input {}, {}, was made a sum of parts on {}: redistribute it there first", op,
         i, describe(input),
         sharding->line().name.empty() ? "the mesh itself" : "line \"" + sharding->line().name + "\"");
  }
  operand.spec = sharding == nullptr ? Spec(input.rank()) : sharding->lying().spec;
  operand.is_parameter = is_parameter(input);
  return operand;
}

// A hash of the plan, of the tensors' names, and of whether the call is recorded: metadata does not tell these.
uint64_t fingerprint_of(const OpPlan& plan, std::span<const Tensor> inputs, bool record) {
  Fingerprint fingerprint;
  fingerprint.add(plan.hash).add(record ? 1 : 0);
  for (const Tensor& input : inputs) {
    const Sharding* sharding = Sharding::of(input);
    fingerprint.add(autograd::requires_grad(input) ? 1 : 0);
    if (sharding == nullptr) continue;
    fingerprint.add(sharding->name().call).add(sharding->name().output);
    if (!sharding->name().line.empty()) fingerprint.add(sharding->name().line);
  }
  return fingerprint.value();
}

// An application of an op to inputs, which are first brought to the plan's specs.
class OpCallOnShards {
 public:
  OpCallOnShards(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes, bool record,
                 CallOnLine& call)
      : op_(op), inputs_(inputs), attributes_(attributes), record_(record), call_(call) {}

  // Chooses the plan, and notes the call on the line. Throws alike on all members.
  void choose() {
    std::string replicas;
    try {
      for (size_t i = 0; i < inputs_.size(); ++i)
        operands_.push_back(operand_of(op_.name, inputs_[i], i, call_.line().name));
      plan_ = call_.line().program->plan({op_.name, attributes_, operands_});
      if (plan_->placement.moves == layout::MoveClass::kData) call_.line().program->on_hidden_move(hidden_text());
      replicas = call_.line().program->describe_replicas(inputs_);
    } catch (const Error& error) {
      call_.note_failure(op_.name, error);
      throw;
    }
    const uint64_t fingerprint = fingerprint_of(*plan_, inputs_, record_);
    if (replicas.empty()) {
      call_.note(plan_->text, fingerprint);
    } else {
      call_.note(plan_->text + replicas, Fingerprint().add(fingerprint).add(replicas).value());
    }
  }

  Tensors run() {
    for (size_t i = 0; i < inputs_.size(); ++i) bring(i);
    LocalOp local(plan_, std::move(shards_), needed());
    across_.emplace(call_, plan_->local.part ? plan_->local.part->merged : layout::Axes());
    Tensors shards = local.run(*across_);
    local.scale_outputs(shards, weight_of_rows(local));
    Tensors outputs;
    for (size_t i = 0; i < shards.size(); ++i) {
      outputs.push_back(make_sharded(call_.line(), call_.name_of(static_cast<uint32_t>(i)),
                                     plan_->rule.output_shapes[i], plan_->placement.outputs[i], shards[i]));
    }
    if (needed() != 0) note_node(std::move(local), outputs);
    return outputs;
  }

  // Whether other members may already wait for this one's part of a merge.
  bool has_begun_to_merge() const { return across_ && across_->has_begun(); }

  // Whether an op may have refused elements: indices, or targets that are classes. If these are cut, other members have
  // other elements, and may not have failed.
  bool is_of_elements(const Error& error) const {
    const std::string_view signature = op_.signature;
    const size_t place = std::min(signature.find("tensor index"), signature.find("tensor targets"));
    if (place == std::string_view::npos || error.status() != Status::kInvalidArgument) return false;
    const std::string_view before = signature.substr(0, place);
    const auto choosing = static_cast<size_t>(std::count(before.begin(), before.end(), ','));
    const Operand& operand = operands_[choosing];
    return operand.dtype == Dtype::kInt64 && mesh().used(plan_->placement.inputs[choosing].cut()) != 0;
  }

 private:
  const layout::MeshShape& mesh() const { return call_.line().program->shape(); }

  std::string hidden_text() const {
    std::string text = plan_->text + " moves";
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!plan_->moves[i]) continue;
      const Move move(mesh(), operands_[i].shape, operands_[i].spec, plan_->placement.inputs[i]);
      int64_t most = 0;
      for (int64_t position = 0; position < mesh().count(); ++position) {
        most = std::max(most, move.received_in_move(position));
      }
      if (most == 0) continue;
      text += fmt::format(" input {} to {} ({} bytes for a member)", i, print_spec(mesh(), plan_->placement.inputs[i]),
                          most * static_cast<int64_t>(dtype_size(operands_[i].dtype)));
    }
    return text;
  }

  void bring(size_t i) {
    Sharding* sharding = Sharding::of(inputs_[i]);
    if (sharding == nullptr) {
      const Spec& to = plan_->placement.inputs[i];
      shards_.push_back(inputs_[i] ? call_.move(operands_[i].shape, inputs_[i], operands_[i].spec, to) : Tensor());
      parameters_.emplace_back();
      return;
    }
    Lying lying = sharding->lying();
    if (plan_->moves[i]) {
      const Move move(mesh(), operands_[i].shape, lying.spec, plan_->placement.inputs[i]);
      if (move.sum() == layout::SumKind::kAllReduce) {
        // The same value, summed: a second reader does not sum it again.
        lying.shard = call_.move(operands_[i].shape, lying.shard, lying.spec, move.after_sum());
        lying.spec = move.after_sum();
        sharding->set_summed(lying);
      }
      shards_.push_back(call_.move(operands_[i].shape, lying.shard, lying.spec, plan_->placement.inputs[i]));
    } else {
      shards_.push_back(lying.shard);
    }
    parameters_.push_back(gathered_parameter(i, *sharding, lying));
  }

  // Set if the input was gathered, by this op or before: then all members gather it again for backward, or none.
  std::optional<GatheredParameter> gathered_parameter(size_t i, const Sharding& sharding, const Lying& lying) const {
    const Spec& wanted = plan_->placement.inputs[i];
    const bool comes_here = plan_->moves[i] && !Move(mesh(), operands_[i].shape, lying.spec, wanted).is_local();
    if (comes_here && operands_[i].is_parameter) {
      return GatheredParameter{sharding.origin() ? *sharding.origin() : lying, wanted};
    }
    if (!comes_here && sharding.origin() && sharding.is_gathered()) {
      return GatheredParameter{*sharding.origin(), lying.spec};
    }
    return std::nullopt;
  }

  // The sum of the weights of all members' rows, if the op is a mean over weights; else 1.
  double weight_of_rows(const LocalOp& local) {
    if (!plan_->local.is_over_weights) return 1;
    Spec partial = plan_->placement.outputs[0].dual();
    partial.set_partial(plan_->placement.outputs[0].partial());
    return call_.move({}, local.weights_of_rows(), partial, partial.dual()).item();
  }

  uint64_t needed() const {
    if (!record_ || op_.backward == nullptr) return 0;
    uint64_t needed = 0;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (autograd::requires_grad(inputs_[i])) needed |= uint64_t{1} << (i < 64 ? i : 63);
    }
    return needed;
  }

  void note_node(LocalOp local, const Tensors& outputs);

  const ops::Op& op_;
  const std::span<const Tensor> inputs_;
  const ops::Attributes& attributes_;
  const bool record_;
  CallOnLine& call_;
  std::vector<Operand> operands_;
  std::shared_ptr<const OpPlan> plan_;
  std::optional<AcrossLine> across_;
  Tensors shards_;
  std::vector<std::optional<GatheredParameter>> parameters_;  // by input
};

struct OpSaved final : autograd::Node::SavedData {
  explicit OpSaved(LocalOp l) : local(std::move(l)) {}
  LocalOp local;
};

// An application of an op by all members.
class OpNode final : public ShardedNode {
 public:
  OpNode(const CallOnLine& call, std::shared_ptr<const OpPlan> plan, std::vector<Dims> shapes,
         std::vector<autograd::Edge> next, std::vector<Output> outputs)
      : ShardedNode(call.line(), call.number(), std::move(next), std::move(outputs)),
        plan_(std::move(plan)),
        shapes_(std::move(shapes)) {}
  std::string name() const override { return plan_->op->name; }

  Tensors run(SavedData& saved, Tensors gradients, CallOnLine& call) override {
    LocalOp& local = static_cast<OpSaved&>(saved).local;
    for (Tensor& gradient : gradients) gradient = shard_of(gradient);
    Tensors shards = local.run_backward(std::move(gradients), call);
    Tensors result(next().size());
    for (size_t i = 0; i < result.size(); ++i) {
      if (next()[i].node == nullptr || i >= shards.size() || !shards[i]) continue;
      result[i] =
          make_sharded(call.line(), call.name_of(0), shapes_[i], plan_->placement.gradients[i], shards[i].contiguous());
    }
    return result;
  }

 private:
  const std::shared_ptr<const OpPlan> plan_;
  const std::vector<Dims> shapes_;
};

void OpCallOnShards::note_node(LocalOp local, const Tensors& outputs) {
  std::vector<ShardedNode::Output> slots;
  for (size_t i = 0; i < outputs.size(); ++i) {
    slots.push_back({outputs[i].shape(), plan_->placement.outputs[i].dual()});
  }
  std::vector<Dims> shapes;
  for (const Operand& operand : operands_) shapes.push_back(operand.shape);
  if (!call_.line().program->keeps_gathered() && !plan_->has_unequal_parts) local.forget_gathered(shapes, parameters_);
  local.drop_inputs();
  auto node = std::make_shared<OpNode>(call_, plan_, std::move(shapes), edges_of(inputs_), std::move(slots));
  node->set_saved(std::make_shared<OpSaved>(std::move(local)));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (is_floating(outputs[i].dtype())) autograd::set_history(outputs[i], {node, static_cast<uint32_t>(i)});
  }
}

}  // namespace

// A failure by arguments is alike on all members, and counts as a call of the line. A failure that the others may not
// share ends the mesh: of memory, in the middle of a merge, or by elements of a part.
Tensors apply_sharded(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                      bool record) {
  CallOnLine call(common_line(op.name, inputs), op.name);
  for (const Tensor& input : inputs) {
    if (input && Sharding::of(input) == nullptr) call.make_elements(input);
  }
  OpCallOnShards sharded(op, inputs, attributes, record, call);
  try {
    sharded.choose();
  } catch (const std::bad_alloc&) {
    call.end_mesh(current_error());
    throw;
  }
  try {
    return sharded.run();
  } catch (...) {
    const Error error = current_error();
    const bool is_alone =
        error.status() == Status::kOutOfMemory || sharded.has_begun_to_merge() || sharded.is_of_elements(error);
    if (is_alone) call.end_mesh(error);
    const std::string text = fmt::format("{}, which fails: {}", op.name, error.message());
    call.note(text, Fingerprint().add(op.name).add(static_cast<uint64_t>(error.status())).value());
    throw error;
  }
}

}  // namespace distag::spmd
