#include "optim/local_optimizer.h"

#include <algorithm>
#include <set>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/dispatch.h"
#include "tensor/access.h"
#include "tensor/shape_only.h"
#include "tensor/strided.h"

namespace distag::optim {
namespace {

Tensor filled(Dtype dtype, const Dims& shape, double value) {
  Tensor tensor = Tensor::empty(dtype, shape);
  ops::dispatch_floating("optimizer", dtype, [&]<typename T>(T) {
    std::fill_n(tensor.mutable_data_as<T>(), tensor.count(), static_cast<T>(value));
  });
  return tensor;
}

// Returns the gradient in row-major order; throws unless it fits the parameter.
Tensor checked_gradient(const Tensor& parameter, const Tensor& gradient) {
  if (gradient.dtype() != parameter.dtype() || gradient.shape() != parameter.shape()) {
    fail(Status::kInvalidArgument, "step: parameter {} has a gradient {}", describe(parameter), describe(gradient));
  }
  return gradient.contiguous();
}

[[noreturn]] void refuse_kept(const std::string& name, const Tensor& kept, size_t number, const Tensor& parameter) {
  fail(Status::kInvalidArgument, "load: \"{}\" is {}, but parameter {} is {}", name, describe(kept), number,
       describe(parameter));
}

}  // namespace

void check_parameter(const Tensor& tensor) {
  if (tensor.dtype() != Dtype::kFloat32 && tensor.dtype() != Dtype::kFloat64) {
    fail(Status::kInvalidArgument, "optimizer: parameter {} must be float32 or float64", describe(tensor));
  }
  check_not_shape_only(tensor);
  if (autograd::has_history(tensor)) {
    fail(Status::kInvalidArgument, "optimizer: parameter {} was computed from what requires grad: give the leaf",
         describe(tensor));
  }
  for (size_t i = 0; i < tensor.rank(); ++i) {
    if (tensor.shape()[i] > 1 && tensor.strides()[i] == 0) {
      fail(Status::kInvalidArgument, "optimizer: elements of parameter {} share memory: clone it first",
           describe(tensor));
    }
  }
}

void check_saved(const Rule& rule, const Value& saved, size_t number) {
  const Value* step = saved.find("step");
  constexpr int64_t kMostSteps = int64_t{1} << 53;  // counts are exact in float64
  if (step == nullptr || step->as_int64() < 0 || step->as_int64() > kMostSteps) {
    fail(Status::kInvalidArgument, "load: the state of parameter {} needs a \"step\" between 0 and 2^53", number);
  }
  for (const auto& [name, value] : saved.as_map()) {
    if (name == "step") continue;
    if (std::find(rule.slots.begin(), rule.slots.end(), name) == rule.slots.end()) {
      fail(Status::kInvalidArgument, "load: {} keeps no \"{}\" of a parameter", rule.name, name);
    }
    value.as_tensor();  // throws for any other kind of value
  }
  if (step->as_int64() == 0) return;
  // Settings other than the defaults need more slots, which are missing in good states too: when one was set since the
  // parameter's last step. The next step makes them.
  const uint32_t always = rule.needed_slots(Settings(rule));
  for (size_t slot = 0; slot < rule.slots.size(); ++slot) {
    if ((always >> slot & 1u) == 0 || saved.find(rule.slots[slot]) != nullptr) continue;
    fail(Status::kInvalidArgument, "load: the state of parameter {} has no \"{}\"", number, rule.slots[slot]);
  }
}

LocalOptimizer::LocalOptimizer(const Rule& rule, Tensors parameters, PartOfState part_of)
    : part_of_(part_of), settings_(rule), parameters_(std::move(parameters)), states_(parameters_.size()) {
  std::set<uint64_t> ids;
  for (const Tensor& parameter : parameters_) {
    check_parameter(parameter);
    if (!ids.insert(parameter.id()).second) {
      fail(Status::kInvalidArgument, "optimizer: parameter {} is given twice", describe(parameter));
    }
  }
}

void LocalOptimizer::step(std::span<const Tensor> gradients) {
  const Rule& rule = settings_.rule();
  if (rule.check != nullptr) rule.check(settings_);
  std::vector<Turn> turns;
  Tensors targets;
  turns.reserve(parameters_.size());
  targets.reserve(parameters_.size());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!gradients[i]) continue;
    turns.push_back(prepare(i, shard_of(gradients[i])));
    targets.push_back(turns.back().parameter);
  }
  // All parameters are locked at once: a reader sees the step in all of them or in none.
  const TensorWriter writer(targets);
  for (Turn& turn : turns) run(turn);
}

void LocalOptimizer::step(const Gradients& gradients) {
  Tensors found;
  found.reserve(parameters_.size());
  for (const Tensor& parameter : parameters_) {
    const Tensor* gradient = gradients.find(parameter);
    found.push_back(gradient == nullptr ? Tensor() : *gradient);
  }
  step(found);
}

std::vector<uint64_t> LocalOptimizer::ids() const {
  std::vector<uint64_t> ids;
  ids.reserve(parameters_.size());
  for (const Tensor& parameter : parameters_) ids.push_back(parameter.id());
  return ids;
}

// Allocates all memory that run() needs beside the parameter's own, so that run() cannot fail.
LocalOptimizer::Turn LocalOptimizer::prepare(size_t index, const Tensor& gradient) {
  const Rule& rule = settings_.rule();
  if (autograd::has_history(parameters_[index])) {
    fail(Status::kInvalidState, "step: parameter {} has become a part of a graph", describe(parameters_[index]));
  }
  const ShardSlot* sharding = parameters_[index].shard_slot();
  if (sharding != nullptr && sharding->is_partial()) {
    fail(Status::kInvalidState, "step: parameter {} is a sum of parts, none of which is the parameter: redistribute it",
         describe(parameters_[index]));
  }
  const Tensor parameter = shard_of(parameters_[index]);
  Turn turn{index, parameter, parameter, checked_gradient(parameter, gradient), states_[index]};
  if (!parameter.is_contiguous()) turn.target = Tensor::empty(parameter.dtype(), parameter.shape());
  ++turn.next.step;
  const uint32_t needed = rule.needed_slots(settings_);
  for (size_t slot = 0; slot < rule.slots.size(); ++slot) {
    if ((needed >> slot & 1u) == 0) continue;
    Tensor& kept = turn.next.slots[slot];
    if (!kept) {
      const double value = rule.initial_of_slot == nullptr ? 0.0 : rule.initial_of_slot(settings_, slot);
      kept = filled(parameter.dtype(), parameter.shape(), value);
      turn.fresh |= 1u << slot;
    }
    kept.mutable_data();
  }
  return turn;
}

// The caller holds the parameter for writing.
void LocalOptimizer::run(Turn& turn) {
  const Rule& rule = settings_.rule();
  Tensor& parameter = turn.parameter;
  const uint32_t needed = rule.needed_slots(settings_);
  states_[turn.index] = turn.next;
  if (parameter.count() == 0) return;
  std::byte* target = turn.target.mutable_data();
  if (!parameter.is_contiguous()) {
    copy_strided(target, turn.target.strides(), parameter.data(), parameter.strides(), parameter.shape(),
                 dtype_size(parameter.dtype()));
  }
  Update update{.dtype = parameter.dtype(),
                .parameter = target,
                .gradient = turn.gradient.data(),
                .slots = {target, target, target},
                .fresh = turn.fresh,
                .count = parameter.count(),
                .step = turn.next.step,
                .settings = settings_};
  for (size_t slot = 0; slot < rule.slots.size(); ++slot) {
    if ((needed >> slot & 1u) != 0) update.slots[slot] = turn.next.slots[slot].mutable_data();
  }
  rule.update(update);
  if (parameter.is_contiguous()) return;
  copy_strided(parameter.mutable_data(), parameter.strides(), target, turn.target.strides(), parameter.shape(),
               dtype_size(parameter.dtype()));
}

Value LocalOptimizer::save() const {
  const Rule& rule = settings_.rule();
  Value::List saved;
  saved.reserve(states_.size());
  for (size_t i = 0; i < states_.size(); ++i) {
    const State& state = states_[i];
    const ShardSlot* lies_as = parameters_[i].shard_slot();
    Value::Map entries{{"step", Value(state.step)}};
    for (size_t slot = 0; slot < rule.slots.size(); ++slot) {
      if (!state.slots[slot]) continue;
      const Tensor kept = state.slots[slot].snapshot();
      entries.emplace_back(rule.slots[slot], Value(lies_as == nullptr ? kept : lies_as->like(kept)));
    }
    saved.push_back(Value::map(std::move(entries)));
  }
  return Value::list(std::move(saved));
}

void LocalOptimizer::load(const Value& saved) {
  const Value::List& items = saved.as_list();
  if (items.size() != states_.size()) {
    fail(Status::kInvalidArgument, "load: the state is of {} parameters, not {}", items.size(), states_.size());
  }
  std::vector<State> states;
  states.reserve(items.size());
  for (size_t i = 0; i < items.size(); ++i) states.push_back(load_state(items[i], i));
  states_ = std::move(states);
}

LocalOptimizer::State LocalOptimizer::load_state(const Value& saved, size_t index) const {
  const Rule& rule = settings_.rule();
  check_saved(rule, saved, index);
  const Tensor& whole = parameters_[index];
  const Tensor parameter = shard_of(whole);
  State state;
  state.step = saved.find("step")->as_int64();
  for (const auto& [name, value] : saved.as_map()) {
    if (name == "step") continue;
    const Tensor& given = value.as_tensor();
    const bool fits =
        given.dtype() == whole.dtype() &&
        (given.shape() == whole.shape() || (given.shard_slot() == nullptr && given.shape() == parameter.shape()));
    if (!fits) refuse_kept(name, given, index, whole);
    const bool is_cut = whole.shard_slot() != nullptr && part_of_ != nullptr;
    const Tensor kept = shard_of(is_cut ? part_of_(whole, given) : given);
    if (kept.shape() != parameter.shape()) refuse_kept(name, kept, index, parameter);
    const auto slot = std::find(rule.slots.begin(), rule.slots.end(), name);
    // A copy with its own storage: the given value must not change with the state.
    state.slots[static_cast<size_t>(slot - rule.slots.begin())] = kept.snapshot().contiguous();
  }
  return state;
}

}  // namespace distag::optim
