#include "spmd/spec_completion.h"

#include <fmt/format.h>

#include <algorithm>

#include "spmd/op_key.h"

namespace distag::spmd {

using layout::AxisSet;
using layout::Operand;
using layout::Placement;
using layout::Spec;

namespace {

// The spec without its cut along the axis.
Spec without(const Spec& spec, size_t axis) {
  Spec result = spec;
  for (size_t d = 0; d < spec.rank(); ++d) {
    layout::Axes axes;
    for (const uint8_t each : spec.dim(d)) {
      if (each != axis) axes.push_back(each);
    }
    result.dim(d) = axes;
  }
  return result;
}

}  // namespace

SpecCompletion::SpecCompletion(const layout::MeshShape& mesh, const TracedProgram& program,
                               std::vector<std::optional<Spec>> fixed)
    : mesh_(mesh),
      program_(program),
      fixed_(std::move(fixed)),
      readers_(program.items().size()),
      moves_(program.steps().size()),
      results_(program.steps().size()) {
  for (const TracedProgram::Step& step : program.steps()) {
    for (const size_t item : step.inputs) {
      if (item != TracedProgram::kNone) ++readers_[item];
    }
  }
  begin();
  for (size_t step = 0; step < program.steps().size(); ++step) {
    std::vector<Operand> operands;
    const Placement& placement = place(step, operands);
    add_up(step, operands, placement);
  }
  least_moves_ = moves_;
  do {
    begin();
  } while (!complete());
}

void SpecCompletion::begin() {
  specs_.clear();
  given_.clear();
  has_taken_back_ = false;
  for (size_t item = 0; item < program_.items().size(); ++item) {
    const bool is_fixed = item < fixed_.size() && fixed_[item];
    specs_.push_back(is_fixed ? *fixed_[item] : Spec(program_.items()[item].shape.size()));
  }
}

bool SpecCompletion::complete() {
  do {
    has_changed_ = false;
    wishes_.assign(program_.items().size(), Wishes());
    forward();
    if (has_taken_back_) return false;
    backward();
  } while (has_changed_);
  return moves_no_more();
}

bool SpecCompletion::moves_no_more() {
  for (size_t step = 0; step < moves_.size(); ++step) {
    if (moves_[step] <= least_moves_[step]) continue;
    blame(step);
    return false;
  }
  return true;
}

// Takes back the cut, of those that may have brought it about, without which the step moves no more: the one that was
// given last in the program. Where no single one does, all of them.
void SpecCompletion::blame(size_t step) {
  constexpr size_t kMostTried = 64;
  const std::vector<Spec> leaves(specs_.begin(), specs_.begin() + static_cast<ptrdiff_t>(fixed_.size()));
  std::vector<std::pair<size_t, size_t>> cuts = cuts_before(step);
  if (cuts.empty()) {
    // A sum that another reader of an input no longer makes.
    for (const auto& [cut, from] : given_) cuts.push_back(cut);
  }
  for (size_t i = 0; i < std::min(cuts.size(), kMostTried); ++i) {
    if (moves_without(step, cuts[i].first, cuts[i].second, leaves) > least_moves_[step]) continue;
    cuts = {cuts[i]};
    break;
  }
  for (const auto& [item, axis] : cuts) {
    take_back(item, axis,
              fmt::format("{} wants dim {} cut by '{}', {} would move more: repeated", name_of(given_.at({item, axis})),
                          leaves[item].dim_of(axis), mesh_.axis_name(axis), name_of(step)));
  }
}

// The cuts given to leaves on which the step depends, the latest first.
std::vector<std::pair<size_t, size_t>> SpecCompletion::cuts_before(size_t step) const {
  std::vector<bool> is_needed(specs_.size());
  for (size_t i = step + 1; i-- > 0;) {
    const TracedProgram::Step& each = program_.steps()[i];
    bool is_before = i == step;
    for (size_t o = 0; o < each.op->shapes().size(); ++o) is_before = is_before || is_needed[each.first_output + o];
    for (const size_t item : each.inputs) {
      if (is_before && item != TracedProgram::kNone) is_needed[item] = true;
    }
  }
  std::vector<std::pair<size_t, size_t>> cuts;
  for (const auto& [cut, from] : given_) {
    if (is_needed[cut.first]) cuts.push_back(cut);
  }
  std::stable_sort(cuts.begin(), cuts.end(),
                   [this](const auto& a, const auto& b) { return given_.at(a) > given_.at(b); });
  return cuts;
}

layout::MoveClass SpecCompletion::moves_without(size_t step, size_t item, size_t axis,
                                                const std::vector<Spec>& leaves) {
  std::copy(leaves.begin(), leaves.end(), specs_.begin());
  specs_[item] = without(leaves[item], axis);
  for (size_t i = 0; i <= step; ++i) {
    std::vector<Operand> operands;
    const Placement& placement = place(i, operands);
    add_up(i, operands, placement);
  }
  return moves_[step];
}

layout::OpCall SpecCompletion::call_of(const TracedProgram::Step& step, std::vector<Operand>& operands) const {
  for (const size_t item : step.inputs) {
    Operand operand;
    operand.is_defined = item != TracedProgram::kNone;
    if (operand.is_defined) {
      operand.dtype = program_.items()[item].dtype;
      operand.shape = program_.items()[item].shape;
      operand.spec = specs_[item];
      operand.is_parameter = item < fixed_.size() && autograd::requires_grad(program_.leaves()[item]) &&
                             !autograd::has_history(program_.leaves()[item]);
    }
    operands.push_back(std::move(operand));
  }
  return {step.op->op().name, step.op->attributes(), operands};
}

const SpecCompletion::Placed& SpecCompletion::placed(const layout::OpCall& call) {
  const auto [found, is_new] = placements_.try_emplace(key_of(call));
  if (is_new) {
    found->second.rule = rule_of(call);
    found->second.placement = choose_placement(mesh_, call, found->second.rule);
  }
  return found->second;
}

void SpecCompletion::forward() {
  for (size_t step = 0; step < program_.steps().size(); ++step) {
    std::vector<Operand> operands;
    const Placement& placement = place(step, operands);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].is_defined) hear(step, program_.steps()[step].inputs[i], placement.inputs[i]);
    }
    check_costs(step, placement.moves);
    add_up(step, operands, placement);
  }
}

const Placement& SpecCompletion::place(size_t number, std::vector<Operand>& operands) {
  const TracedProgram::Step& step = program_.steps()[number];
  const Placement& placement = placed(call_of(step, operands)).placement;
  moves_[number] = placement.moves;
  for (size_t i = 0; i < placement.outputs.size(); ++i) specs_[step.first_output + i] = placement.outputs[i];
  if (!placement.outputs.empty()) results_[number] = placement.outputs[0];
  return placement;
}

void SpecCompletion::add_up(size_t number, const std::vector<Operand>& operands, const Placement& placement) {
  const TracedProgram::Step& step = program_.steps()[number];
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].is_defined || mesh_.used(operands[i].spec.partial()) == 0) continue;
    // As when it runs: a later reader finds the sum.
    const layout::Move move(mesh_, operands[i].shape, operands[i].spec, placement.inputs[i]);
    if (move.sum() == layout::SumKind::kAllReduce) specs_[step.inputs[i]] = move.after_sum();
  }
}

// The step brings the item to that spec.
void SpecCompletion::hear(size_t step, size_t item, const Spec& wanted) {
  AxisSet given = 0;
  for (size_t axis = 0; axis < mesh_.axis_count(); ++axis) {
    const Spec& now = specs_[item];
    const size_t dim = wanted.dim_of(axis);
    if (mesh_.size(axis) == 1 || now.is_partial(axis) || now.dim_of(axis) == dim) continue;
    if (now.dim_of(axis) == now.rank()) {
      wish(item, axis, dim, step);
      if (is_free(item) && !is_taken_back(item, axis)) given |= AxisSet{1} << axis;
    } else if (is_free(item)) {
      const std::string other = dim == wanted.rank() ? "it whole" : fmt::format("dim {}", dim);
      take_back(item, axis,
                fmt::format("{} wants dim {} cut by '{}', {} {}: repeated", name_of(given_.at({item, axis})),
                            now.dim_of(axis), mesh_.axis_name(axis), name_of(step), other));
    }
  }
  for (size_t d = 0; is_free(item) && d < wanted.rank(); ++d) {
    layout::Axes& axes = specs_[item].dim(d);
    if (set_of(axes) != set_of(wanted.dim(d)) || axes == wanted.dim(d)) continue;
    if ((set_of(axes) & given) != 0) {
      axes = wanted.dim(d);
      continue;
    }
    for (const uint8_t axis : axes) {
      take_back(item, axis,
                fmt::format("{} wants dim {} cut by its axes in another order: repeated", name_of(step), d));
    }
  }
}

// With each cut that a leaf was given taken out in turn.
void SpecCompletion::check_costs(size_t number, layout::MoveClass moves) {
  if (moves == layout::MoveClass::kNone) return;
  const TracedProgram::Step& step = program_.steps()[number];
  for (const size_t item : step.inputs) {
    if (item == TracedProgram::kNone || !is_free(item)) continue;
    for (size_t axis = 0; axis < mesh_.axis_count(); ++axis) {
      const size_t dim = specs_[item].dim_of(axis);
      if (dim == specs_[item].rank() || is_taken_back(item, axis)) continue;
      const Spec kept = specs_[item];
      specs_[item] = without(kept, axis);
      std::vector<Operand> operands;
      const layout::MoveClass less = placed(call_of(step, operands)).placement.moves;
      specs_[item] = kept;
      if (less >= moves) continue;
      take_back(item, axis,
                fmt::format("{} wants dim {} cut by '{}', {} would move more: repeated",
                            name_of(given_.at({item, axis})), dim, mesh_.axis_name(axis), name_of(number)));
    }
  }
}

void SpecCompletion::backward() {
  for (size_t step = program_.steps().size(); step-- > 0;) {
    for (size_t output = 0; output < program_.steps()[step].op->shapes().size(); ++output) {
      for (size_t axis = 0; axis < mesh_.axis_count(); ++axis) backward(step, output, axis);
    }
  }
}

// Where all readers of a result want it cut along the axis, and the op gives that at no cost if inputs are cut.
void SpecCompletion::backward(size_t number, size_t output, size_t axis) {
  const TracedProgram::Step& step = program_.steps()[number];
  const size_t item = step.first_output + output;
  const Wish& wanted = wishes_[item][axis];
  if (wanted.state != Wish::State::kOne || wanted.readers != readers_[item]) return;
  const size_t dim = wanted.dim;
  std::vector<Operand> operands;
  const layout::Rule& rule = placed(call_of(step, operands)).rule;
  const int factor = rule.outputs[output][dim].factor;
  Cuts cuts;
  if (factor == layout::FactorDim::kWhole || !find_cuts(step, factor, axis, rule, cuts)) return;
  std::vector<Spec> kept;
  for (const auto& [input, at] : cuts) {
    kept.push_back(specs_[input]);
    if (specs_[input].dim_of(axis) == specs_[input].rank()) specs_[input].dim(at).push_back(static_cast<uint8_t>(axis));
  }
  operands.clear();
  const Placement& placement = placed(call_of(step, operands)).placement;
  for (size_t i = cuts.size(); i-- > 0;) specs_[cuts[i].first] = kept[i];
  const bool is_given = placement.moves <= moves_[number] && placement.outputs[output].dim_of(axis) == dim;
  if (!is_given) return;
  for (const auto& [input, at] : cuts) wish(input, axis, at, number);
}

// The inputs that can be cut for the factor; false: there are none, or the axis has a use in the op already.
bool SpecCompletion::find_cuts(const TracedProgram::Step& step, int factor, size_t axis, const layout::Rule& rule,
                               Cuts& cuts) const {
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const size_t item = step.inputs[i];
    if (item == TracedProgram::kNone) continue;
    const Spec& spec = specs_[item];
    if (spec.dim_of(axis) < spec.rank() || spec.is_partial(axis)) return false;
    const bool is_leaf = item < fixed_.size();
    if (is_leaf && (!is_free(item) || is_taken_back(item, axis))) continue;
    for (size_t d = 0; d < rule.inputs[i].size(); ++d) {
      if (rule.inputs[i][d].factor == factor) cuts.emplace_back(item, d);
    }
  }
  return !cuts.empty();
}

void SpecCompletion::wish(size_t item, size_t axis, size_t dim, size_t step) {
  if (item < fixed_.size()) {
    const bool is_cut = specs_[item].dim_of(axis) < specs_[item].rank();
    if (!is_free(item) || is_taken_back(item, axis) || is_cut) return;
    specs_[item].dim(dim).push_back(static_cast<uint8_t>(axis));
    given_[{item, axis}] = step;
    has_changed_ = true;
    return;
  }
  Wish& wish = wishes_[item][axis];
  const bool is_first = wish.state == Wish::State::kNone;
  const bool is_alike = is_first || (wish.state == Wish::State::kOne && wish.dim == dim);
  wish.state = is_alike ? Wish::State::kOne : Wish::State::kContrary;
  wish.dim = static_cast<uint8_t>(dim);
  ++wish.readers;
}

void SpecCompletion::take_back(size_t item, size_t axis, std::string why) {
  taken_back_.emplace(std::pair(item, axis), std::move(why));
  has_taken_back_ = true;
}

std::string SpecCompletion::name_of(size_t step) const {
  return fmt::format("op {} ({})", step, program_.steps()[step].op->op().name);
}

std::string SpecCompletion::why(size_t leaf) const {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  for (size_t axis = 0; axis < mesh_.axis_count(); ++axis) {
    if (const auto found = taken_back_.find({leaf, axis}); found != taken_back_.end()) add(found->second);
    if (const auto found = given_.find({leaf, axis}); found != given_.end()) {
      add(fmt::format("'{}' follows from {}", mesh_.axis_name(axis), name_of(found->second)));
    }
  }
  return text.empty() ? "nothing follows for it: repeated" : text;
}

}  // namespace distag::spmd
