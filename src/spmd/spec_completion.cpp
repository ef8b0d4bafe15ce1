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

// The most cuts that are taken out in turn to find the one by which a step moves more: each takes a placement.
constexpr size_t kMostTried = 64;
// The most inputs of an op whose placements are kept: each placement takes memory for all inputs.
constexpr size_t kMostInputsKept = 64;

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
      moves_(program.steps().size()),
      results_(program.steps().size()) {
  list_uses();
  begin();
  for (size_t step = 0; step < program.steps().size(); ++step) place(step);
  least_moves_ = moves_;
  do {
    begin();
  } while (!complete());
}

void SpecCompletion::list_uses() {
  const size_t item_count = program_.items().size();
  wiring_.use_count.assign(item_count, 0);
  wiring_.first_read.assign(item_count, TracedProgram::kNone);
  wiring_.maker.assign(item_count, TracedProgram::kNone);
  std::vector<size_t> last_read(item_count, TracedProgram::kNone);
  for (size_t number = 0; number < program_.steps().size(); ++number) {
    const TracedProgram::Step& step = program_.steps()[number];
    for (size_t i = 0; i < step.op->shapes().size(); ++i) wiring_.maker[step.first_output + i] = number;
    wiring_.first_use.push_back(wiring_.uses.size());
    for (const size_t item : step.inputs) {
      const size_t use = wiring_.uses.size();
      Use& made = wiring_.uses.emplace_back();
      made.item = item;
      made.step = number;
      made.first = use;
      if (item == TracedProgram::kNone) continue;
      ++wiring_.use_count[item];
      size_t& last = last_read[item];
      if (last != TracedProgram::kNone && wiring_.uses[last].step == number) {
        wiring_.uses[use].first = last;
        continue;
      }
      (last == TracedProgram::kNone ? wiring_.first_read[item] : wiring_.uses[last].after) = use;
      wiring_.uses[use].before = last;
      last = use;
    }
  }
}

void SpecCompletion::begin() {
  made_.clear();
  given_.clear();
  has_taken_back_ = false;
  for (size_t item = 0; item < program_.items().size(); ++item) {
    const bool is_fixed = item < fixed_.size() && fixed_[item];
    made_.push_back(is_fixed ? *fixed_[item] : Spec(program_.items()[item].shape.size()));
  }
}

bool SpecCompletion::complete() {
  do {
    has_changed_ = false;
    wishes_.assign(program_.items().size(), Wishes());
    for (Use& use : wiring_.uses) use.wishing = 0;
    forward();
    if (has_taken_back_) return false;
    backward();
  } while (has_changed_);
  return moves_no_more();
}

// Steps that move more only after a cut was taken back, on which other cuts followed, are judged again later.
bool SpecCompletion::moves_no_more() {
  const std::vector<Moved> moves = moves_;
  for (size_t step = 0; step < moves.size(); ++step) {
    if (std::min(moves[step], moves_[step]) > least_moves_[step]) blame(step);
  }
  return !has_taken_back_;
}

// Takes back the cut without which the step moves no more, the latest in the program. If no single cut is enough, takes
// back all that the step depends on.
void SpecCompletion::blame(size_t step) {
  std::vector<std::pair<size_t, size_t>> cuts = cuts_before(step);
  if (cuts.empty()) {
    // The step depends on no cut: a reader of one of its inputs no longer makes a sum.
    for (const auto& [cut, from] : given_) {
      if (!is_taken_back(cut.first, cut.second)) cuts.push_back(cut);
    }
  }
  for (size_t i = 0; i < std::min(cuts.size(), kMostTried); ++i) {
    if (moves_without(step, cuts[i].first, cuts[i].second) > least_moves_[step]) continue;
    cuts = {cuts[i]};
    break;
  }
  std::vector<size_t> items;
  for (const auto& [item, axis] : cuts) {
    take_back(item, axis,
              fmt::format("{} wants dim {} cut by '{}', {} would move more: repeated", name_of(given_.at({item, axis})),
                          made_[item].dim_of(axis), mesh_.axis_name(axis), name_of(step)));
    made_[item] = without(made_[item], axis);
    items.push_back(item);
  }
  place_behind(items, program_.steps().size());
}

// The cuts given to leaves on which the step depends, the latest first.
std::vector<std::pair<size_t, size_t>> SpecCompletion::cuts_before(size_t step) const {
  std::set<size_t> leaves;
  std::set<size_t> steps = {step};
  std::vector<size_t> left = {step};
  while (!left.empty()) {
    const size_t each = left.back();
    left.pop_back();
    for (const size_t item : program_.steps()[each].inputs) {
      if (item == TracedProgram::kNone) continue;
      if (wiring_.maker[item] == TracedProgram::kNone) {
        leaves.insert(item);
      } else if (steps.insert(wiring_.maker[item]).second) {
        left.push_back(wiring_.maker[item]);
      }
    }
  }
  std::vector<std::pair<size_t, size_t>> cuts;
  for (const size_t item : leaves) {
    for (size_t axis = 0; axis < mesh_.axis_count(); ++axis) {
      if (given_.count({item, axis}) != 0 && !is_taken_back(item, axis)) cuts.emplace_back(item, axis);
    }
  }
  std::stable_sort(cuts.begin(), cuts.end(),
                   [this](const auto& a, const auto& b) { return given_.at(a) > given_.at(b); });
  return cuts;
}

SpecCompletion::Moved SpecCompletion::moves_without(size_t step, size_t item, size_t axis) {
  const Spec kept = made_[item];
  made_[item] = without(kept, axis);
  place_behind({&item, 1}, step);
  const Moved moves = moves_[step];
  made_[item] = kept;
  place_behind({&item, 1}, step);
  return moves;
}

// The spec in which the step finds the item. As in a run: behind a reader that made a sum, the sum.
const Spec& SpecCompletion::read(size_t number) const {
  const Use& use = wiring_.uses[wiring_.uses[number].first];
  const Spec& made = made_[use.item];
  return use.before == TracedProgram::kNone || mesh_.used(made.partial()) == 0 ? made : wiring_.uses[use.before].left;
}

layout::OpCall SpecCompletion::call_of(size_t number, std::vector<Operand>& operands) const {
  const TracedProgram::Step& step = program_.steps()[number];
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const size_t item = step.inputs[i];
    Operand operand;
    operand.is_defined = item != TracedProgram::kNone;
    if (operand.is_defined) {
      operand.dtype = program_.items()[item].dtype;
      operand.shape = program_.items()[item].shape;
      operand.spec = read(wiring_.first_use[number] + i);
      operand.is_parameter = item < fixed_.size() && autograd::requires_grad(program_.leaves()[item]) &&
                             !autograd::has_history(program_.leaves()[item]);
    }
    operands.push_back(std::move(operand));
  }
  return {step.op->op().name, step.op->attributes(), operands};
}

const SpecCompletion::Placed& SpecCompletion::placed(const layout::OpCall& call) {
  ++placements_.count;
  if (call.inputs.size() > kMostInputsKept) {
    ++placements_.count_of_large;
    placements_.large.rule = rule_of(call);
    placements_.large.placement = choose_placement(mesh_, call, placements_.large.rule);
    return placements_.large;
  }
  const auto [found, is_new] = placements_.kept.try_emplace(key_of(call));
  if (is_new) {
    found->second.rule = rule_of(call);
    found->second.placement = choose_placement(mesh_, call, found->second.rule);
  }
  return found->second;
}

void SpecCompletion::forward() {
  for (size_t step = 0; step < program_.steps().size(); ++step) {
    const Placement& placement = place(step);
    for (size_t i = 0; i < placement.inputs.size(); ++i) {
      const size_t use = wiring_.first_use[step] + i;
      if (wiring_.uses[use].item != TracedProgram::kNone) hear(use, placement.inputs[i]);
    }
    check_costs(step);
  }
}

const Placement& SpecCompletion::place(size_t number) {
  const TracedProgram::Step& step = program_.steps()[number];
  std::vector<Operand> operands;
  const Placement& placement = placed(call_of(number, operands)).placement;
  moves_[number] = {placement.moves, placement.received};
  for (size_t i = 0; i < placement.outputs.size(); ++i) made_[step.first_output + i] = placement.outputs[i];
  if (!placement.outputs.empty()) results_[number] = placement.outputs[0];
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].is_defined) continue;
    const size_t use = wiring_.first_use[number] + i;
    Spec& left = wiring_.uses[wiring_.uses[use].first].left;
    if (wiring_.uses[use].first == use) left = operands[i].spec;
    if (mesh_.used(operands[i].spec.partial()) == 0) continue;
    const layout::Move move(mesh_, operands[i].shape, operands[i].spec, placement.inputs[i]);
    if (move.sum() == layout::SumKind::kAllReduce) left = move.after_sum();
  }
  return placement;
}

void SpecCompletion::add_readers(size_t item, std::set<size_t>& steps) const {
  for (size_t use = wiring_.first_read[item]; use != TracedProgram::kNone; use = wiring_.uses[use].after) {
    steps.insert(wiring_.uses[use].step);
  }
}

// Places again, up to a last step, the steps that changed leaves have an effect on.
void SpecCompletion::place_behind(std::span<const size_t> items, size_t last) {
  std::set<size_t> steps;
  for (const size_t item : items) add_readers(item, steps);
  while (!steps.empty() && *steps.begin() <= last) {
    const size_t number = *steps.begin();
    steps.erase(steps.begin());
    const TracedProgram::Step& step = program_.steps()[number];
    const auto outputs = made_.begin() + static_cast<ptrdiff_t>(step.first_output);
    const std::vector<Spec> made(outputs, outputs + static_cast<ptrdiff_t>(step.op->shapes().size()));
    std::vector<Spec> left;
    for (size_t i = 0; i < step.inputs.size(); ++i) left.push_back(wiring_.uses[wiring_.first_use[number] + i].left);
    place(number);
    for (size_t i = 0; i < made.size(); ++i) {
      if (made_[step.first_output + i] != made[i]) add_readers(step.first_output + i, steps);
    }
    for (size_t i = 0; i < left.size(); ++i) {
      const Use& use = wiring_.uses[wiring_.first_use[number] + i];
      if (use.after != TracedProgram::kNone && use.left != left[i]) steps.insert(wiring_.uses[use.after].step);
    }
  }
}

// Notes that the step brings the item to that spec.
void SpecCompletion::hear(size_t use, const Spec& wanted) {
  const size_t item = wiring_.uses[use].item;
  const size_t step = wiring_.uses[use].step;
  AxisSet given = 0;
  for (size_t axis = 0; axis < mesh_.axis_count(); ++axis) {
    const Spec now = read(use);
    const size_t dim = wanted.dim_of(axis);
    if (mesh_.size(axis) == 1 || now.is_partial(axis) || now.dim_of(axis) == dim) continue;
    if (now.dim_of(axis) == now.rank()) {
      wish(use, axis, dim);
      if (is_free(item) && !is_taken_back(item, axis)) given |= AxisSet{1} << axis;
    } else if (is_free(item)) {
      const std::string other = dim == wanted.rank() ? "it whole" : fmt::format("dim {}", dim);
      take_back(item, axis,
                fmt::format("{} wants dim {} cut by '{}', {} {}: repeated", name_of(given_.at({item, axis})),
                            now.dim_of(axis), mesh_.axis_name(axis), name_of(step), other));
    }
  }
  for (size_t d = 0; is_free(item) && d < wanted.rank(); ++d) {
    layout::Axes& axes = made_[item].dim(d);
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

// Takes out each cut that a leaf was given in turn, of the first ones. moves_no_more() finds others.
void SpecCompletion::check_costs(size_t number) {
  const Moved moves = moves_[number];
  if (moves.moves == layout::MoveClass::kNone) return;
  const TracedProgram::Step& step = program_.steps()[number];
  size_t tried = 0;
  for (const size_t item : step.inputs) {
    if (item == TracedProgram::kNone || !is_free(item)) continue;
    for (size_t axis = 0; axis < mesh_.axis_count(); ++axis) {
      const size_t dim = made_[item].dim_of(axis);
      if (dim == made_[item].rank() || is_taken_back(item, axis)) continue;
      if (++tried > kMostTried) return;
      const Spec kept = made_[item];
      made_[item] = without(kept, axis);
      std::vector<Operand> operands;
      const Placement& other = placed(call_of(number, operands)).placement;
      const Moved less{other.moves, other.received};
      made_[item] = kept;
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

// Wishes cuts of inputs if all uses of a result want it cut along the axis, and the op then gives that at no cost.
void SpecCompletion::backward(size_t number, size_t output, size_t axis) {
  const TracedProgram::Step& step = program_.steps()[number];
  const size_t item = step.first_output + output;
  const Wish& wanted = wishes_[item][axis];
  if (wanted.state != Wish::State::kOne || wanted.uses != wiring_.use_count[item]) return;
  const size_t dim = wanted.dim;
  std::vector<Operand> operands;
  const layout::Rule& rule = placed(call_of(number, operands)).rule;
  const int factor = rule.outputs[output][dim].factor;
  Cuts cuts;
  if (factor == layout::FactorDim::kWhole || !find_cuts(number, factor, axis, rule, cuts)) return;
  operands.clear();
  const layout::OpCall call = call_of(number, operands);
  for (const Cut& cut : cuts) {
    operands[cut.use - wiring_.first_use[number]].spec.dim(cut.dim).push_back(static_cast<uint8_t>(axis));
  }
  const Placement& placement = placed({call.op, call.attributes, operands}).placement;
  const bool is_given =
      Moved{placement.moves, placement.received} <= moves_[number] && placement.outputs[output].dim_of(axis) == dim;
  if (!is_given) return;
  for (const Cut& cut : cuts) wish(cut.use, axis, cut.dim);
}

// Finds the inputs that can be cut for the factor; false: there are none, or the op already uses the axis.
bool SpecCompletion::find_cuts(size_t number, int factor, size_t axis, const layout::Rule& rule, Cuts& cuts) const {
  const TracedProgram::Step& step = program_.steps()[number];
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const size_t item = step.inputs[i];
    if (item == TracedProgram::kNone) continue;
    const size_t use = wiring_.first_use[number] + i;
    const Spec& spec = read(use);
    if (spec.dim_of(axis) < spec.rank() || spec.is_partial(axis)) return false;
    const bool is_leaf = item < fixed_.size();
    if (is_leaf && (!is_free(item) || is_taken_back(item, axis))) continue;
    for (size_t d = 0; d < rule.inputs[i].size(); ++d) {
      if (rule.inputs[i][d].factor == factor) cuts.push_back({use, d});
    }
  }
  return !cuts.empty();
}

// A use counts once, though several results of its step may wish the same.
void SpecCompletion::wish(size_t number, size_t axis, size_t dim) {
  Use& use = wiring_.uses[number];
  const size_t item = use.item;
  if (item < fixed_.size()) {
    const bool is_cut = made_[item].dim_of(axis) < made_[item].rank();
    if (!is_free(item) || is_taken_back(item, axis) || is_cut) return;
    made_[item].dim(dim).push_back(static_cast<uint8_t>(axis));
    given_[{item, axis}] = use.step;
    has_changed_ = true;
    return;
  }
  Wish& wish = wishes_[item][axis];
  const bool is_first = wish.state == Wish::State::kNone;
  const bool is_alike = is_first || (wish.state == Wish::State::kOne && wish.dim == dim);
  wish.state = is_alike ? Wish::State::kOne : Wish::State::kContrary;
  wish.dim = static_cast<uint8_t>(dim);
  if (!layout::has_axis(use.wishing, axis)) ++wish.uses;
  use.wishing |= AxisSet{1} << axis;
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
