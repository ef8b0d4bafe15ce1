#include "spmd/simulated_mesh.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "coll/fold.h"
#include "layout/spec_text.h"
#include "ops/attributes.h"
#include "spmd/part_ops.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

using layout::Axes;
using layout::axes_of;
using layout::Box;
using layout::LocalCall;
using layout::Move;
using layout::OpCall;
using layout::Placement;
using layout::Rule;
using layout::Spec;

Tensor run_op(std::string_view name, const Tensors& inputs, const ops::Attributes& attributes = {}) {
  const ops::Op* op = ops::find_op(name);
  ops::check_arguments(*op, inputs, attributes);
  return op->forward(inputs, attributes, nullptr).at(0);
}

Tensor scaled(const Tensor& x, double factor) {
  return run_op("mul_scalar", {x}, ops::make_attributes({{"value", factor}}));
}

// The factors of the parts of a sum: each partial sum is -1, 0 or 1, so nothing is rounded.
double part_factor(int64_t index, int64_t count) {
  if (count == 1) return 1;
  if (index == 0) return -1;
  if (count % 2 == 0) return index == 1 ? 2 : (index % 2 == 0 ? -1 : 1);
  return index <= 2 ? 1 : (index % 2 == 1 ? -1 : 1);
}

Box moved_into(Box box, const Box& outer) {
  for (size_t i = 0; i < box.offset.size(); ++i) box.offset[i] -= outer.offset[i];
  return box;
}

void write_box(Tensor& target, const Box& box, const Tensor& values) {
  if (box.empty()) return;
  Dims strides = target.strides();
  int64_t offset = target.offset();
  for (size_t i = 0; i < strides.size(); ++i) offset += box.offset[i] * strides[i];
  Tensor part = target.view(box.extent, strides, offset);
  ops::assign(part, values);
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Tensor left = a.contiguous();
  const Tensor right = b.contiguous();
  return a.shape() == b.shape() && (a.count() == 0 || std::memcmp(left.data(), right.data(), a.byte_size()) == 0);
}

}  // namespace

Tensor box_of_tensor(const Tensor& whole, const Box& box) {
  if (box.empty()) return Tensor::empty(whole.dtype(), box.extent);
  int64_t offset = whole.offset();
  for (size_t i = 0; i < box.offset.size(); ++i) offset += box.offset[i] * whole.strides()[i];
  return whole.view(box.extent, whole.strides(), offset).clone();
}

void expect_close(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.shape(), expected.shape());
  ASSERT_EQ(got.dtype(), expected.dtype());
  if (!is_floating(got.dtype())) {
    const Tensor left = got.contiguous();
    const Tensor right = expected.contiguous();
    ASSERT_TRUE(got.count() == 0 || std::memcmp(left.data(), right.data(), got.byte_size()) == 0);
    return;
  }
  const auto left = values_of<double>(got);
  const auto right = values_of<double>(expected);
  double largest = 1;
  for (double value : right) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  for (size_t i = 0; i < left.size(); ++i) {
    if (std::isnan(right[i]) || std::isinf(right[i])) {
      ASSERT_TRUE(std::isnan(right[i]) ? std::isnan(left[i]) : left[i] == right[i]) << "element " << i;
    } else {
      ASSERT_NEAR(left[i], right[i], 1e-12 * largest) << "element " << i;
    }
  }
}

Sharded SimulatedMesh::cut(const Tensor& whole, const Spec& spec) const {
  Sharded result{whole.shape(), spec, {}};
  const Axes partial = axes_of(spec.partial());
  for (int64_t position = 0; position < shape_.count(); ++position) {
    Tensor shard = box_of_tensor(whole, box_of(shape_, spec, whole.shape(), position));
    if (!partial.empty()) {
      const double factor = part_factor(shape_.index_along(partial, position), shape_.size_of(partial));
      shard = run_op("cast", {scaled(shard, factor)}, ops::make_attributes({{"dtype", shard.dtype()}}));
    }
    result.shards.push_back(shard);
  }
  return result;
}

Tensor SimulatedMesh::whole(const Sharded& x) const {
  const Sharded everywhere = redistribute(x, Spec(x.shape.size()));
  for (const Tensor& shard : everywhere.shards) {
    EXPECT_TRUE(same_bits(shard, everywhere.shards[0])) << print_spec(shape_, x.spec);
  }
  for (int64_t position = 0; position < shape_.count(); ++position) {
    const Tensor& shard = x.shards[static_cast<size_t>(position)];
    const Box box = box_of(shape_, x.spec, x.shape, position);
    EXPECT_EQ(shard.shape(), box.extent) << "position " << position << " of " << print_spec(shape_, x.spec);
    if (shape_.used(x.spec.partial()) == 0) {
      EXPECT_TRUE(same_bits(shard, box_of_tensor(everywhere.shards[0], box))) << print_spec(shape_, x.spec);
    }
  }
  return everywhere.shards[0];
}

// Members that differ along the axes of the sum add up their parts, in ascending order.
Sharded SimulatedMesh::summed(const Sharded& x, const Move& move) const {
  Sharded result{x.shape, move.after_sum(), {}};
  for (int64_t position = 0; position < shape_.count(); ++position) {
    Tensor sum;
    for (int64_t other : shape_.group_of(axes_of(set_of(move.sum_axes())), position)) {
      const Tensor& part = x.shards[static_cast<size_t>(other)];
      sum = sum ? run_op("add", {sum, part}) : part;
    }
    const Box held = box_of(shape_, x.spec, x.shape, position);
    result.shards.push_back(box_of_tensor(sum, moved_into(box_of(shape_, result.spec, x.shape, position), held)));
  }
  return result;
}

Sharded SimulatedMesh::redistribute(const Sharded& x, const Spec& to) const {
  const Move move(shape_, x.shape, x.spec, to);
  Sharded source = move.sum() == layout::SumKind::kNothing ? x : summed(x, move);
  Sharded result{x.shape, to, {}};
  for (int64_t position = 0; position < shape_.count(); ++position) {
    const Box target = box_of(shape_, to, x.shape, position);
    Tensor shard = Tensor::empty(x.shards[0].dtype(), target.extent);
    for (const layout::Transfer& transfer : move.taken_by(position)) {
      const Box held = box_of(shape_, move.after_sum(), x.shape, transfer.from);
      const Tensor part =
          box_of_tensor(source.shards[static_cast<size_t>(transfer.from)], moved_into(transfer.box, held));
      write_box(shard, moved_into(transfer.box, target), part);
    }
    result.shards.push_back(shard);
  }
  return result;
}

Sharded SimulatedMesh::meet(const Spec& own, const std::vector<Sharded>& arrivals) const {
  std::vector<Spec> specs;
  for (const Sharded& arrival : arrivals) specs.push_back(arrival.spec);
  const Spec where = layout::meeting_spec(own, specs);
  Sharded sum{arrivals[0].shape, where, {}};
  for (const Sharded& arrival : arrivals) {
    Spec spec = own.dual();
    spec.set_partial(arrival.spec.partial() & where.partial());
    const Sharded there = redistribute(arrival, spec);
    const Axes once = axes_of(where.partial() & ~spec.partial());
    for (int64_t position = 0; position < shape_.count(); ++position) {
      const auto i = static_cast<size_t>(position);
      Tensor part = there.shards[i];
      if (shape_.index_along(once, position) != 0) part = scaled(part, 0);
      if (sum.shards.size() <= i)
        sum.shards.push_back(part);
      else
        sum.shards[i] = run_op("add", {sum.shards[i], part});
    }
  }
  return redistribute(sum, own.dual());
}

namespace {

// Members that merge values meet here, each on a thread of its own.
class MeetingPlace {
 public:
  MeetingPlace(const layout::MeshShape& mesh, const Axes& axes) : mesh_(mesh), axes_(axes) {}

  // The tensors of the members that differ from this one along the axes only, in the order of positions. Throws once
  // one gave up.
  Tensors meet(int64_t position, const Tensor& x) {
    const std::vector<int64_t> group = mesh_.group_of(axes_, position);
    std::unique_lock lock(mutex_);
    Round& round = rounds_[{group.front(), visits_[position]++}];
    round.brought[position] = x.contiguous();
    changed_.notify_all();
    changed_.wait(lock, [&] { return round.brought.size() == group.size() || has_failed_; });
    if (round.brought.size() < group.size()) throw std::runtime_error("another member gave up");
    Tensors all;
    for (const auto& [from, tensor] : round.brought) all.push_back(tensor);
    return all;
  }
  void give_up() {
    const std::lock_guard lock(mutex_);
    has_failed_ = true;
    changed_.notify_all();
  }

 private:
  struct Round {
    std::map<int64_t, Tensor> brought;
  };
  const layout::MeshShape& mesh_;
  const Axes axes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_failed_ = false;
  std::map<int64_t, size_t> visits_;
  std::map<std::pair<int64_t, size_t>, Round> rounds_;
};

class SimulatedAcross final : public spmd::Across {
 public:
  SimulatedAcross(MeetingPlace& place, int64_t position) : place_(place), position_(position) {}

  Tensor reduce(const Tensor& x, Reduction reduction) override {
    std::vector<distag::Operand> operands;
    for (const Tensor& each : place_.meet(position_, x)) {
      operands.push_back({0, static_cast<int64_t>(operands.size()), each});
    }
    return fold(reduction, std::move(operands)).clone();
  }
  Tensor gather(const Tensor& row) override {
    return run_op("stack", place_.meet(position_, row), ops::make_attributes({{"dim", 0}}));
  }

 private:
  MeetingPlace& place_;
  const int64_t position_;
};

// The part of an application that one member has.
struct Part {
  LocalCall call;
  ops::Saved saved;
  Tensors inputs;
  Tensors outputs;
  double weights = 0;
};

// Runs the part of each member: at the same time if they merge values.
void on_all(const layout::MeshShape& mesh, std::vector<Part>& parts,
            const std::function<void(Part& part, spmd::Across& across, size_t k)>& run) {
  MeetingPlace place(mesh, parts[0].call.part ? parts[0].call.part->merged : Axes());
  std::vector<std::exception_ptr> failures(parts.size());
  const auto member = [&](size_t k) {
    SimulatedAcross across(place, static_cast<int64_t>(k));
    try {
      run(parts[k], across, k);
    } catch (...) {
      failures[k] = std::current_exception();
      place.give_up();
    }
  };
  std::vector<std::thread> threads;
  for (size_t k = 0; k < parts.size(); ++k) {
    if (parts[0].call.part) {
      threads.emplace_back(member, k);
    } else {
      member(k);
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

// The weights of a member's rows, added up by a loss of -1 everywhere.
Tensor weights_of_rows(const Part& part) {
  if (part.call.part) return Tensor::scalar(Dtype::kFloat64, part.weights);
  Tensors inputs = part.inputs;
  inputs[0] = run_op("add_scalar", {scaled(run_op("clone", {inputs[0]}), 0)}, ops::make_attributes({{"value", -1.0}}));
  return run_op("nll_loss", inputs, part.call.attributes);
}

void run_part(Part& part, spmd::Across& across, uint64_t needed) {
  const ops::Op& op = *ops::find_op(part.call.op);
  Tensors inputs = part.inputs;
  if (part.call.added_apart) inputs[part.call.added_apart->input] = Tensor();
  part.saved.needed = needed;
  ops::check_arguments(op, inputs, part.call.attributes);
  ops::Saved* const saved = op.backward != nullptr ? &part.saved : nullptr;
  if (part.call.part) {
    const spmd::PartOp& part_op = spmd::find_part_op(part.call.op);
    const auto result = part_op.forward({*part.call.part, part.call.attributes, across}, inputs, saved);
    part.outputs = {result.output};
    part.weights = result.weights;
    return;
  }
  part.outputs = op.forward(inputs, part.call.attributes, saved);
  if (!part.call.added_apart || !part.call.added_apart->is_first) return;
  Dims shape;
  shape.resize(part.outputs[0].rank(), 1);
  shape[part.call.added_apart->dim] = part.inputs[part.call.added_apart->input].count();
  const Tensor bias =
      run_op("reshape", {part.inputs[part.call.added_apart->input]}, ops::make_attributes({{"shape", shape}}));
  part.outputs[0] = run_op("add", {part.outputs[0], bias});
}

Tensors run_backward(const Part& part, spmd::Across& across, Tensors gradients, size_t inputs) {
  const Tensor whole = gradients[0];
  if (part.call.part && spmd::find_part_op(part.call.op).backward != nullptr) {
    const spmd::PartOp& part_op = spmd::find_part_op(part.call.op);
    Tensors result = part_op.backward({*part.call.part, part.call.attributes, across}, part.saved, whole);
    result.resize(inputs);
    return result;
  }
  Tensors result = ops::find_op(part.call.op)->backward(part.saved, std::move(gradients));
  result.resize(inputs);
  if (!part.call.added_apart) return result;
  Dims others;
  for (size_t d = 0; d < whole.rank(); ++d) {
    if (d != part.call.added_apart->dim) others.push_back(static_cast<int64_t>(d));
  }
  result[part.call.added_apart->input] =
      others.empty() ? whole : run_op("sum", {whole}, ops::make_attributes({{"dims", others}}));
  return result;
}

std::vector<layout::Operand> operands_of(const std::vector<Sharded>& inputs, const std::vector<bool>& are_parameters) {
  std::vector<layout::Operand> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    layout::Operand operand{!inputs[i].shards.empty(), Dtype::kFloat64, inputs[i].shape, inputs[i].spec,
                            i < are_parameters.size() && are_parameters[i]};
    if (operand.is_defined) operand.dtype = inputs[i].shards[0].dtype();
    operands.push_back(operand);
  }
  return operands;
}

}  // namespace

Applied SimulatedMesh::apply(const std::string& op, const std::vector<Sharded>& inputs,
                             const ops::Attributes& attributes, const std::vector<bool>& are_parameters) const {
  const std::vector<layout::Operand> operands = operands_of(inputs, are_parameters);
  const OpCall call{op, attributes, operands};
  const Rule rule = rule_of(call);
  Applied applied{choose_placement(shape_, call, rule), {}, false, {}};
  auto parts = std::make_shared<std::vector<Part>>(static_cast<size_t>(shape_.count()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    Sharded there;
    if (operands[i].is_defined) there = redistribute(inputs[i], applied.placement.inputs[i]);
    for (size_t k = 0; k < parts->size(); ++k) {
      (*parts)[k].inputs.push_back(operands[i].is_defined ? there.shards[k] : Tensor());
    }
  }
  for (size_t i = 0; i < rule.outputs.size(); ++i) {
    applied.outputs.push_back({rule.output_shapes[i], applied.placement.outputs[i], {}});
  }
  uint64_t needed = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].is_defined && is_floating(operands[i].dtype)) needed |= uint64_t{1} << i;
  }
  for (size_t k = 0; k < parts->size(); ++k) {
    (*parts)[k].call = local_call(shape_, call, rule, applied.placement, static_cast<int64_t>(k));
  }
  applied.is_on_parts = parts->front().call.part.has_value();
  on_all(shape_, *parts, [&](Part& part, spmd::Across& across, size_t) { run_part(part, across, needed); });
  if (rule.form == layout::LocalForm::kLossOverWeights) {
    Sharded weights{{}, applied.placement.outputs[0].dual(), {}};
    weights.spec.set_partial(applied.placement.outputs[0].partial());
    for (const Part& part : *parts) weights.shards.push_back(weights_of_rows(part));
    weights = redistribute(weights, weights.spec.dual());
    for (size_t k = 0; k < parts->size(); ++k) (*parts)[k].call.scale = 1 / weights.shards[k].item();
  }
  for (Part& part : *parts) {
    for (size_t i = 0; i < part.outputs.size(); ++i) {
      Tensor& output = part.outputs[i];
      if (part.call.scale != 1) output = scaled(output, part.call.scale);
      applied.outputs[i].shards.push_back(output);
    }
  }
  const layout::MeshShape& mesh = shape_;
  const Placement placement = applied.placement;
  applied.backward = [parts, inputs, placement, &mesh](const std::vector<Sharded>& gradients) {
    std::vector<Sharded> results;
    for (size_t i = 0; i < inputs.size(); ++i) results.push_back({inputs[i].shape, placement.gradients[i], {}});
    std::vector<Tensors> got(parts->size());
    on_all(mesh, *parts, [&](Part& part, spmd::Across& across, size_t k) {
      Tensors own;
      for (size_t i = 0; i < gradients.size(); ++i) {
        EXPECT_TRUE(places_alike(mesh, gradients[i].spec, placement.outputs[i].dual()));
        const double scale = part.call.scale;
        own.push_back(scale != 1 ? scaled(gradients[i].shards[k], scale) : gradients[i].shards[k].clone());
      }
      got[k] = run_backward(part, across, std::move(own), inputs.size());
    });
    for (const Tensors& each : got) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (each[i]) results[i].shards.push_back(each[i].contiguous());
      }
    }
    return results;
  };
  return applied;
}

}  // namespace distag::testing
