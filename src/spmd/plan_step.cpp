#include "spmd/plan_step.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "autograd/autograd.h"
#include "ops/attributes.h"
#include "spmd/kept_tensors.h"
#include "spmd/op_key.h"
#include "spmd/part_ops.h"

namespace distag::spmd {

using layout::AxisSet;
using layout::Move;
using layout::MoveKind;
using layout::Operand;
using layout::Placement;
using layout::Spec;
using layout::SumKind;

namespace {

constexpr size_t kNoItem = TracedProgram::kNone;

void add_number_key(std::string& key, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) key.push_back(static_cast<char>(number >> (8 * i)));
}

uint64_t input_bit(size_t input) { return uint64_t{1} << std::min<size_t>(input, 63); }

bool is_product(std::string_view op) {
  return op == "matmul" || op == "linear" || op.starts_with("conv") || op == "scaled_dot_product_attention";
}

uint64_t elements_of(const Dims& shape) {
  uint64_t product = 1;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(size), &product)) return UINT64_MAX;
  }
  return product;
}

// For a product, 2 for each multiplication and addition; for other ops, 1 for each element of the largest tensor.
uint64_t operations_of(const layout::OpCall& call, const layout::Rule& rule) {
  const uint64_t results = rule.output_shapes.empty() ? 0 : elements_of(rule.output_shapes[0]);
  if (call.op == "matmul" || call.op == "linear") {
    return saturating_product(2 * std::min<uint64_t>(results, UINT64_MAX / 2),
                              static_cast<uint64_t>(call.inputs[0].shape.back()));
  }
  if (call.op.starts_with("conv")) {
    const Dims& weight = call.inputs[1].shape;
    const auto channels = static_cast<uint64_t>(weight[call.op == "conv_transpose2d" ? 1 : 0]);
    return saturating_product(2 * std::min<uint64_t>(results, UINT64_MAX / 2),
                              elements_of(weight) / std::max<uint64_t>(channels, 1));
  }
  if (call.op == "scaled_dot_product_attention") {
    const Dims& keys = call.inputs[1].shape;
    return saturating_product(4 * std::min<uint64_t>(elements_of(call.inputs[0].shape), UINT64_MAX / 4),
                              static_cast<uint64_t>(keys[keys.size() - 2]));
  }
  uint64_t most = results;
  for (const Operand& operand : call.inputs) most = std::max(most, operand.is_defined ? elements_of(operand.shape) : 0);
  return most;
}

// The factor for forward and backward. Backward of a product is a product for each input that needs a gradient; of
// other ops, as much as forward.
uint64_t products_of(std::string_view op, bool goes_backward, uint64_t needed) {
  if (!goes_backward) return 1;
  return 1 + (is_product(op) ? (needed & 1) + (needed >> 1 & 1) : 1);
}

Dtype dtype_of(const Merge& merge, Dtype input) {
  switch (merge.of) {
    case Merge::Of::kInput:
      return input;
    case Merge::Of::kFloating:
      return is_floating(input) ? input : Dtype::kFloat32;
    case Merge::Of::kFloat64:
      return Dtype::kFloat64;
    case Merge::Of::kInt64:
      return Dtype::kInt64;
    case Merge::Of::kBool:
      return Dtype::kBool;
  }
  return input;
}

void count(StepCounts& counts, const Move& move) {
  counts.all_reduces += move.sum() == SumKind::kAllReduce;
  counts.reduce_scatters += move.sum() == SumKind::kReduceScatter;
  counts.all_gathers += move.move() == MoveKind::kAllGather;
  counts.all_to_alls += move.move() == MoveKind::kAllToAll;
  counts.moves += move.move() == MoveKind::kBoxes;
}

void count(StepCounts& counts, const layout::Traffic& traffic) {
  counts.bytes_sent += static_cast<uint64_t>(traffic.sent);
  counts.bytes_received += static_cast<uint64_t>(traffic.received);
}

AxisSet axes_in(const Spec& spec) { return spec.cut() | spec.partial(); }

}  // namespace

StepPart& StepPart::operator+=(const StepPart& other) {
  time = saturating_sum(time, other.time);
  counts.all_reduces += other.counts.all_reduces;
  counts.all_gathers += other.counts.all_gathers;
  counts.reduce_scatters += other.counts.reduce_scatters;
  counts.all_to_alls += other.counts.all_to_alls;
  counts.moves += other.counts.moves;
  counts.bytes_sent += other.counts.bytes_sent;
  counts.bytes_received += other.counts.bytes_received;
  return *this;
}

uint64_t largest_part(const layout::MeshShape& mesh, const Spec& spec, const Dims& shape, Dtype dtype) {
  return static_cast<uint64_t>(box_of(mesh, spec, shape, 0).count()) * dtype_size(dtype);
}

// ---- what goes backward ----

BackwardFlow::BackwardFlow(const TracedProgram& program, bool is_inference)
    : steps(program.steps().size()),
      uses(program.steps().size()),
      arrivals(program.items().size()),
      last_reader(program.items().size(), kNoItem) {
  std::vector<bool> requires_grad(program.items().size());
  for (size_t i = 0; i < program.leaves().size(); ++i) requires_grad[i] = autograd::requires_grad(program.leaves()[i]);
  for (size_t number = 0; number < program.steps().size(); ++number) {
    const TracedProgram::Step& step = program.steps()[number];
    for (size_t i = 0; i < step.op->shapes().size(); ++i) {
      requires_grad[step.first_output + i] = step.op->is_recorded() && is_floating(step.op->dtypes()[i]);
    }
    for (const size_t item : step.inputs) {
      uses[number].push_back(!is_inference && item != kNoItem && requires_grad[item]);
      if (item != kNoItem) last_reader[item] = number;
    }
  }
  for (const size_t root : program.roots()) arrivals[root] += !is_inference && requires_grad[root];
  for (size_t number = steps.size(); number-- > 0;) {
    const TracedProgram::Step& step = program.steps()[number];
    for (size_t i = 0; i < step.op->shapes().size(); ++i) {
      steps[number] = steps[number] || (step.op->is_recorded() && arrivals[step.first_output + i] > 0);
    }
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      if (steps[number] && uses[number][i]) ++arrivals[step.inputs[i]];
    }
  }
}

std::vector<bool> kept_results(const TracedProgram& program, const BackwardFlow& flow) {
  std::vector<bool> kept(program.items().size());
  for (size_t number = 0; number < program.steps().size(); ++number) {
    if (!flow.steps[number]) continue;
    const TracedProgram::Step& step = program.steps()[number];
    uint64_t needed = 0;
    for (size_t i = 0; i < step.inputs.size(); ++i) needed |= flow.uses[number][i] ? input_bit(i) : 0;
    const KeptTensors of_step = kept_tensors(step.op->op().name, needed);
    if (of_step.is_own) kept[step.first_output] = true;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const size_t item = step.inputs[i];
      const bool is_result = item != kNoItem && item >= program.leaves().size();
      if (is_result && of_step.has(i)) kept[item] = true;
    }
  }
  return kept;
}

// ---- parts of a step ----

StepCosts::StepCosts(const layout::MeshShape& mesh, const TracedProgram& program, const PlanCosts& costs,
                     const StepPolicy& policy)
    : mesh_(mesh), program_(program), costs_(costs), policy_(policy), flow_(program, policy.is_inference) {
  std::unordered_map<std::string, uint32_t> classes;
  for (size_t step = 0; step < program.steps().size(); ++step) {
    const auto number = static_cast<uint32_t>(classes.size());
    class_of_step_.push_back(classes.try_emplace(key_of_step(step), number).first->second);
  }
}

bool StepCosts::is_parameter(size_t item) const {
  return item < program_.leaves().size() && autograd::requires_grad(program_.leaves()[item]) &&
         !autograd::has_history(program_.leaves()[item]);
}

std::string StepCosts::key_of_step(size_t number) const {
  const TracedProgram::Step& step = program_.steps()[number];
  // The attributes as they are given: to give a default may ask for another rule.
  Specs none;
  for (const size_t item : step.inputs) none.emplace_back(item == kNoItem ? 0 : program_.items()[item].shape.size());
  std::vector<Operand> operands;
  operands_of(number, none, operands);
  std::string key = key_of(layout::OpCall{step.op->op().name, step.op->attributes(), operands});
  key.push_back(flow_.steps[number] ? 'b' : 'f');
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const size_t item = step.inputs[i];
    if (item == kNoItem) {
      key.push_back('-');
      continue;
    }
    const auto first = std::find(step.inputs.begin(), step.inputs.end(), item) - step.inputs.begin();
    add_number_key(key, static_cast<uint64_t>(first), 4);
    key.push_back(static_cast<char>(program_.items()[item].dtype));
    key.push_back(is_parameter(item) ? 'p' : 'x');
    key.push_back(flow_.uses[number][i] ? 'g' : ' ');
    key.push_back(static_cast<char>(program_.items()[item].shape.size()));
    for (const int64_t size : program_.items()[item].shape) add_number_key(key, static_cast<uint64_t>(size), 8);
  }
  return key;
}

const StepCosts::Applied& StepCosts::apply(size_t step, const Specs& inputs) {
  std::string key;
  add_number_key(key, class_of_step_[step], 4);
  for (const Spec& spec : inputs) add_spec(key, spec);
  const auto found = kept_.find(key);
  if (found != kept_.end()) return found->second;
  ++placement_count_;
  return kept_.emplace(std::move(key), work_out(step, inputs)).first->second;
}

// Fills `operands`. Gives a bit for each input whose gradient is needed.
uint64_t StepCosts::operands_of(size_t number, const Specs& inputs, std::vector<Operand>& operands) const {
  const TracedProgram::Step& step = program_.steps()[number];
  uint64_t needed = 0;
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const size_t item = step.inputs[i];
    Operand& operand = operands.emplace_back();
    operand.is_defined = item != kNoItem;
    if (!operand.is_defined) continue;
    operand.dtype = program_.items()[item].dtype;
    operand.shape = program_.items()[item].shape;
    operand.spec = inputs[i];
    operand.is_parameter = is_parameter(item);
    if (flow_.uses[number][i]) needed |= input_bit(i);
  }
  return needed;
}

StepCosts::Applied StepCosts::work_out(size_t number, const Specs& inputs) {
  const TracedProgram::Step& step = program_.steps()[number];
  std::vector<Operand> operands;
  const uint64_t needed = operands_of(number, inputs, operands);
  const layout::OpCall call{step.op->op().name, step.op->attributes(), operands};
  const layout::Rule rule = rule_of(call);
  const Placement placement = choose_placement(mesh_, call, rule);
  const bool goes_backward = flow_.steps[number];
  Applied applied;
  for (const Spec& spec : placement.outputs) applied.outputs.push_back(without_idle_axes(mesh_, spec));
  for (const Spec& spec : placement.gradients) applied.gradients.push_back(without_idle_axes(mesh_, spec));
  applied.moves = placement.moves;
  if (policy_.refuses_hidden && placement.moves == layout::MoveClass::kData) applied.part.time = kImpossible;
  const bool gathers_again =
      goes_backward && !policy_.keeps_gathered && !has_unequal_parts(mesh_, call, rule, placement);
  bring(number, call, placement, needed, gathers_again, applied);
  add_merges(call, rule, placement, goes_backward, needed, applied);
  add_computing(call, rule, placement, goes_backward, needed, applied);
  return applied;
}

// Brings the inputs one after the other, as the op does: a sum made for one input is there for the next.
void StepCosts::bring(size_t number, const layout::OpCall& call, const Placement& placement, uint64_t needed,
                      bool gathers_again, Applied& applied) {
  const TracedProgram::Step& step = program_.steps()[number];
  for (const Operand& operand : call.inputs) applied.left.push_back(operand.spec);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Operand& operand = call.inputs[i];
    if (!operand.is_defined || places_alike(mesh_, operand.spec, placement.inputs[i])) continue;
    const auto first =
        static_cast<size_t>(std::find(step.inputs.begin(), step.inputs.end(), step.inputs[i]) - step.inputs.begin());
    Spec now = applied.left[first];
    const Move move(mesh_, operand.shape, now, placement.inputs[i]);
    if (move.sum() == SumKind::kAllReduce) {
      applied.part += moved(operand.shape, operand.dtype, now, move.after_sum());
      now = move.after_sum();
      for (size_t k = 0; k < call.inputs.size(); ++k) {
        if (step.inputs[k] == step.inputs[i]) applied.left[k] = now;
      }
    }
    const Move rest(mesh_, operand.shape, now, placement.inputs[i]);
    const StepPart part = moved(operand.shape, operand.dtype, now, placement.inputs[i]);
    applied.part += part;
    const bool is_gathered = operand.is_parameter && !rest.is_local();
    if (is_gathered && gathers_again && kept_tensors(call.op, needed).has(i)) applied.part += part;
  }
}

void StepCosts::add_merges(const layout::OpCall& call, const layout::Rule& rule, const Placement& placement,
                           bool goes_backward, uint64_t needed, Applied& applied) {
  const layout::LocalCall local = local_call(mesh_, call, rule, placement, policy_.position);
  if (local.is_over_weights && mesh_.used(placement.outputs[0].partial()) != 0) {
    Spec partial(size_t{0});
    partial.set_partial(mesh_.used(placement.outputs[0].partial()));
    applied.part += moved({}, Dtype::kFloat64, partial, partial.dual());
  }
  if (!local.part || mesh_.used(local.part->merged).empty()) return;
  const layout::Axes axes = mesh_.used(local.part->merged);
  const int64_t members = mesh_.size_of(axes);
  const PartOp& op = find_part_op(local.op);
  const auto rows_at = [&](int64_t position) {
    const layout::Box box = box_of(mesh_, placement.inputs[0], call.inputs[0].shape, position);
    int64_t rows = 1;
    for (size_t d = 0; d < box.extent.size(); ++d) {
      const int factor = rule.inputs[0][d].factor;
      const bool is_merged = factor != layout::FactorDim::kWhole &&
                             rule.factors[static_cast<size_t>(factor)] == layout::FactorKind::kMerged;
      if (!is_merged) rows *= box.extent[d];
    }
    return rows;
  };
  const auto add = [&](const Merge& merge) {
    const bool has_weights = merge.counts_weights && call.inputs.size() > 2 && call.inputs[2].is_defined;
    const int64_t numbers = merge.numbers + (has_weights ? 1 : 0);
    if (merge.numbers == 0) return;
    const auto item = static_cast<int64_t>(dtype_size(dtype_of(merge, call.inputs[0].dtype)));
    const int64_t here = numbers * rows_at(policy_.position), most = numbers * rows_at(0);
    StepPart part;
    if (merge.is_gathered) {
      part.counts.all_gathers = 1;
      count(part.counts, layout::traffic_of_all_gather(here, item, members));
      part.time = costs_.exchange(
          set_of(axes), saturating_product(static_cast<uint64_t>((members - 1) * item), static_cast<uint64_t>(most)));
    } else {
      part.counts.all_reduces = 1;
      count(part.counts, layout::traffic_of_all_reduce(here, item, members, mesh_.index_along(axes, policy_.position)));
      const auto received = static_cast<uint64_t>(layout::all_reduce_cost(most, members));
      part.time = costs_.exchange(set_of(axes), saturating_product(received, static_cast<uint64_t>(item)));
    }
    applied.part += part;
  };
  for (const Merge& merge : op.forward_merges) add(merge);
  if (goes_backward && (!op.merges_for_first || (needed & 1) != 0)) add(op.backward_merge);
}

// Arithmetic is shared by the members along all axes that cut something.
void StepCosts::add_computing(const layout::OpCall& call, const layout::Rule& rule, const Placement& placement,
                              bool goes_backward, uint64_t needed, Applied& applied) const {
  AxisSet cutting = 0;
  for (size_t i = 0; i < placement.inputs.size(); ++i) {
    if (call.inputs[i].is_defined) cutting |= placement.inputs[i].cut();
  }
  for (const Spec& spec : placement.outputs) cutting |= spec.cut();
  const auto members = static_cast<uint64_t>(mesh_.size_of(layout::axes_of(cutting)));
  const uint64_t whole = operations_of(call, rule);
  const uint64_t products = products_of(call.op, goes_backward, needed);
  applied.part.time = saturating_sum(
      applied.part.time, costs_.computing(saturating_product(whole / members + (whole % members != 0), products)));
}

Picoseconds StepCosts::least_time() const {
  Picoseconds time = 0;
  for (size_t number = 0; number < program_.steps().size(); ++number) {
    const TracedProgram::Step& step = program_.steps()[number];
    Specs inputs;
    for (const size_t item : step.inputs)
      inputs.emplace_back(item == kNoItem ? 0 : program_.items()[item].shape.size());
    std::vector<Operand> operands;
    const uint64_t needed = operands_of(number, inputs, operands);
    const layout::OpCall call{step.op->op().name, step.op->attributes(), operands};
    const uint64_t whole = operations_of(call, rule_of(call));
    const uint64_t part = whole / static_cast<uint64_t>(mesh_.count());
    time = saturating_sum(
        time, costs_.computing(saturating_product(part, products_of(call.op, flow_.steps[number], needed))));
  }
  return time;
}

StepPart StepCosts::moved(const Dims& shape, Dtype dtype, const Spec& from, const Spec& to) {
  if (places_alike(mesh_, from, to)) return {};
  std::string key(1, static_cast<char>(dtype));
  for (const int64_t size : shape) add_number_key(key, static_cast<uint64_t>(size), 8);
  add_spec(key, from);
  add_spec(key, to);
  const auto found = kept_moves_.find(key);
  if (found != kept_moves_.end()) return found->second;
  return kept_moves_.emplace(std::move(key), work_out_move(shape, dtype, from, to)).first->second;
}

StepPart StepCosts::work_out_move(const Dims& shape, Dtype dtype, const Spec& from, const Spec& to) const {
  StepPart part;
  const Move move(mesh_, shape, from, to);
  if (move.is_local()) return part;
  const auto item = static_cast<int64_t>(dtype_size(dtype));
  int64_t most_in_sum = 0, most_in_move = 0;
  for (int64_t position = 0; position < mesh_.count(); ++position) {
    most_in_sum = std::max(most_in_sum, move.received_in_sum(position));
    most_in_move = std::max(most_in_move, move.received_in_move(position));
  }
  if (move.sum() != SumKind::kNothing) {
    part.time = costs_.exchange(set_of(move.sum_axes()), static_cast<uint64_t>(most_in_sum * item));
  }
  if (move.move() != MoveKind::kNothing) {
    const AxisSet axes =
        move.move() == MoveKind::kBoxes ? axes_in(move.after_sum()) | axes_in(move.to()) : set_of(move.move_axes());
    part.time = saturating_sum(part.time, costs_.exchange(axes, static_cast<uint64_t>(most_in_move * item)));
  }
  count(part.counts, move);
  count(part.counts, layout::traffic_of(mesh_, shape, move, item, policy_.position));
  return part;
}

// Adds gradients where they are if these are alike; else brings them to the spec where they meet.
StepPart StepCosts::gathered(const Dims& shape, Dtype dtype, const Specs& arrivals, const Spec& own, Spec& where) {
  StepPart part;
  bool is_alike = true;
  for (const Spec& arrival : arrivals) is_alike = is_alike && places_alike(mesh_, arrivals.front(), arrival);
  where = is_alike ? arrivals.front() : meeting_spec(own, arrivals);
  for (size_t i = 0; !is_alike && i < arrivals.size(); ++i) {
    Spec there = where.dual();
    there.set_partial(arrivals[i].partial() & where.partial());
    part += moved(shape, dtype, arrivals[i], there);
  }
  return part;
}

StepPart StepCosts::meet(size_t item, const Spec& own, const Specs& arrivals) {
  const TracedProgram::Item& result = program_.items()[item];
  Spec where;
  StepPart part = gathered(result.shape, result.dtype, arrivals, own.dual(), where);
  part += moved(result.shape, result.dtype, where, own.dual());
  return part;
}

StepCosts::LeafGradient StepCosts::meet_at_leaf(size_t leaf, const Spec& own, const Specs& arrivals) {
  const TracedProgram::Item& item = program_.items()[leaf];
  Spec where;
  LeafGradient gradient;
  gradient.part = gathered(item.shape, item.dtype, arrivals, own.dual(), where);
  if (places_alike(mesh_, where, own.dual())) return gradient;
  const Move move(mesh_, item.shape, where, own.dual());
  const bool is_plain_sum = move.sum() == SumKind::kAllReduce && places_alike(mesh_, move.after_sum(), own.dual());
  if (!is_plain_sum) {
    gradient.part += moved(item.shape, item.dtype, where, own.dual());
    return gradient;
  }
  const AxisSet axes = set_of(move.sum_axes());
  gradient.bucket = BucketKind{axes, item.dtype};
  gradient.bytes = largest_part(mesh_, own, item.shape, item.dtype);
  gradient.count = box_of(mesh_, own, item.shape, policy_.position).count();
  const auto bytes = static_cast<uint64_t>(move.received_in_sum(0)) * dtype_size(item.dtype);
  gradient.part.time = saturating_sum(gradient.part.time, costs_.transport(axes, bytes));
  return gradient;
}

StepPart StepCosts::send_bucket(const BucketKind& kind, int64_t count_here) const {
  const layout::Axes axes = layout::axes_of(kind.axes);
  StepPart part;
  part.time = costs_.exchange(kind.axes);
  part.counts.all_reduces = 1;
  count(part.counts, layout::traffic_of_all_reduce(count_here, static_cast<int64_t>(dtype_size(kind.dtype)),
                                                   mesh_.size_of(axes), mesh_.index_along(axes, policy_.position)));
  return part;
}

// ---- the whole ----

namespace {

uint64_t kept_bytes(const StepCosts& costs, const std::vector<Spec>& lying) {
  const TracedProgram& program = costs.program();
  const std::vector<bool> kept = kept_results(program, costs.flow());
  uint64_t bytes = 0;
  for (size_t item = program.leaves().size(); item < lying.size(); ++item) {
    const TracedProgram::Item& result = program.items()[item];
    if (!kept[item]) continue;
    bytes = saturating_sum(bytes, largest_part(costs.mesh(), lying[item], result.shape, result.dtype));
  }
  return bytes;
}

}  // namespace

PlannedStep plan_step(StepCosts& costs, const std::vector<Spec>& leaves) {
  const TracedProgram& program = costs.program();
  const BackwardFlow& flow = costs.flow();
  PlannedStep planned;
  std::vector<Spec> now;
  for (const Spec& leaf : leaves) now.push_back(without_idle_axes(costs.mesh(), leaf));
  now.resize(program.items().size());
  std::vector<StepCosts::Specs> arrivals(now.size());
  std::vector<const StepCosts::Applied*> applied;
  for (size_t number = 0; number < program.steps().size(); ++number) {
    const TracedProgram::Step& step = program.steps()[number];
    StepCosts::Specs inputs;
    for (const size_t item : step.inputs) inputs.push_back(item == kNoItem ? Spec() : now[item]);
    const StepCosts::Applied& each = costs.apply(number, inputs);
    applied.push_back(&each);
    planned.part += each.part;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      if (step.inputs[i] != kNoItem) now[step.inputs[i]] = each.left[i];
    }
    for (size_t i = 0; i < each.outputs.size(); ++i) now[step.first_output + i] = each.outputs[i];
    planned.results.push_back(each.outputs.empty() ? Spec() : each.outputs[0]);
    planned.moves.push_back(each.moves);
  }
  planned.activation_bytes = kept_bytes(costs, now);
  for (const size_t root : program.roots()) {
    if (flow.arrivals[root] > 0) arrivals[root].push_back(now[root].dual());
  }
  std::map<StepCosts::BucketKind, std::pair<uint64_t, int64_t>> buckets;  // bytes and elements
  const auto finish_leaf = [&](size_t leaf) {
    const StepCosts::LeafGradient gradient = costs.meet_at_leaf(leaf, now[leaf], arrivals[leaf]);
    planned.part += gradient.part;
    if (!gradient.bucket) return;
    auto& [bytes, count] = buckets[*gradient.bucket];
    bytes += gradient.bytes;
    count += gradient.count;
    if (bytes < costs.policy().bucket_bytes) return;
    planned.part += costs.send_bucket(*gradient.bucket, count);
    buckets.erase(*gradient.bucket);
  };
  for (size_t number = program.steps().size(); number-- > 0;) {
    const TracedProgram::Step& step = program.steps()[number];
    if (!flow.steps[number]) continue;
    for (size_t i = 0; i < step.op->shapes().size(); ++i) {
      const size_t item = step.first_output + i;
      if (!arrivals[item].empty()) planned.part += costs.meet(item, now[item], arrivals[item]);
    }
    std::vector<size_t> leaves_met;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      if (!flow.uses[number][i]) continue;
      const size_t item = step.inputs[i];
      arrivals[item].push_back(applied[number]->gradients[i]);
      if (item < leaves.size() && arrivals[item].size() == flow.arrivals[item]) leaves_met.push_back(item);
    }
    // Leaves that were marked last come first.
    const auto place_of = [&costs](size_t leaf) {
      const std::vector<size_t>& order = costs.policy().marking_order;
      return std::pair(leaf < order.size() ? order[leaf] : 0, leaf);
    };
    std::sort(leaves_met.begin(), leaves_met.end(), [&](size_t a, size_t b) { return place_of(a) > place_of(b); });
    for (const size_t leaf : leaves_met) finish_leaf(leaf);
  }
  for (const auto& [kind, filled] : buckets) planned.part += costs.send_bucket(kind, filled.second);
  return planned;
}

}  // namespace distag::spmd
