#include "spmd/plan_model.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"
#include "spmd/op_key.h"

namespace distag::spmd {

using layout::AxisSet;
using layout::MeshShape;
using layout::Spec;

namespace {

constexpr size_t kLeftOut = TracedProgram::kNone;
constexpr uint32_t kDropped = UINT32_MAX;
constexpr uint32_t kMostKinds = 4;   // of buckets: each doubles the values of a variable that meets all leaves
constexpr size_t kRowsUnasked = 64;  // between two checks of the time
constexpr size_t kMostCuts = 1024;   // of a leaf
constexpr size_t kFewInputs = 8;     // with more inputs, each row takes memory for all

struct Cuts {
  const MeshShape& mesh;
  const Dims& shape;
  AxisSet free;     // axes that may cut any dim; others are where `now` has them
  const Spec* now;  // not read if all are free
  std::vector<Spec> found;
};

// The cuts along the axes from `axis` on; all free axes repeated comes first. A dim that a free axis cuts leaves each
// member some elements; others stay as they are.
void list_cuts(size_t axis, Spec& spec, Cuts& cuts) {
  const auto& [mesh, shape, free, now, found] = cuts;
  if (found.size() > kMostCuts) return;
  if (axis == mesh.axis_count()) {
    cuts.found.push_back(spec);
    return;
  }
  const bool is_free = layout::has_axis(free, axis);
  const size_t place = is_free ? shape.size() : now->dim_of(axis);
  if (place == shape.size()) list_cuts(axis + 1, spec, cuts);
  for (size_t d = 0; mesh.size(axis) > 1 && d < shape.size(); ++d) {
    if (!is_free && d != place) continue;
    const layout::Axes before = spec.dim(d);
    spec.dim(d).push_back(static_cast<uint8_t>(axis));
    const int64_t parts = mesh.size_of(spec.dim(d));
    const bool is_judged = std::any_of(spec.dim(d).begin(), spec.dim(d).end(),
                                       [free = free](uint8_t each) { return layout::has_axis(free, each); });
    if (!is_judged || layout::block_of(shape[d], parts, parts - 1).extent > 0) list_cuts(axis + 1, spec, cuts);
    spec.dim(d) = before;
  }
}

}  // namespace

class PlanModel::Combinations {
 public:
  Combinations(std::vector<uint32_t> variables, const std::vector<uint32_t>& sizes) : variables_(std::move(variables)) {
    std::sort(variables_.begin(), variables_.end());
    variables_.erase(std::unique(variables_.begin(), variables_.end()), variables_.end());
    for (const uint32_t variable : variables_) {
      sizes_.push_back(sizes[variable]);
      if (__builtin_mul_overflow(count_, size_t{sizes_.back()}, &count_)) count_ = SIZE_MAX;
    }
  }

  const std::vector<uint32_t>& variables() const { return variables_; }
  size_t count() const { return count_; }
  // The value of a variable in the combination with this index.
  uint32_t value(size_t index, uint32_t variable) const {
    uint32_t value = 0;
    for (size_t i = variables_.size(); i-- > 0 && variable != kNoVariable;) {
      value = static_cast<uint32_t>(index % sizes_[i]);
      if (variables_[i] == variable) break;
      index /= sizes_[i];
    }
    return value;
  }
  // Adds to a key the specs of a view, and the place of its variable.
  void add_view(std::string& key, const SpecView& view) const {
    const auto place = std::find(variables_.begin(), variables_.end(), view.variable) - variables_.begin();
    key += std::to_string(place) + ' ' + std::to_string(view.values.size()) + ' ';
    for (const Spec& spec : view.values) add_spec(key, spec);
  }

 private:
  std::vector<uint32_t> variables_;
  std::vector<uint32_t> sizes_;
  size_t count_ = 1;
};

// Whether the gradient of the input meets others.
bool PlanModel::meets(size_t step, size_t input) const {
  const BackwardFlow& flow = costs_.flow();
  return flow.steps[step] && flow.uses[step][input] && flow.arrivals[costs_.program().steps()[step].inputs[input]] > 1;
}

PlanModel::PlanModel(StepCosts& costs, const std::vector<std::optional<Spec>>& fixed,
                     const std::vector<uint64_t>& copies, Limits limits)
    : costs_(costs), limits_(std::move(limits)), leaf_count_(fixed.size()) {
  const TracedProgram& program = costs.program();
  arrivals_.resize(program.items().size());
  for (size_t leaf = 0; leaf < leaf_count_; ++leaf) add_leaf(leaf, fixed[leaf], copies[leaf]);
  made_.resize(program.items().size());
  now_ = made_;
  for (size_t step = 0; step < program.steps().size(); ++step) {
    add_step(step);
    if (has_cuts_ && limits_.ends_at_cuts) return;
  }
  for (const size_t root : program.roots()) {
    if (costs.flow().arrivals[root] < 2) continue;
    SpecView seed = made_[root];
    for (Spec& spec : seed.values) spec = limits_.is_rough ? Spec(spec.rank()) : spec.dual();
    arrivals_[root].push_back(std::move(seed));
  }
  for (size_t item = 0; item < arrivals_.size(); ++item) {
    if (!arrivals_[item].empty()) add_meeting(item);
    if (has_gaps_ && !limits_.is_rough) return;  // of no use
  }
  add_activations();
  close_kinds();
}

void PlanModel::check_time() const {
  if (limits_.is_over && limits_.is_over()) {
    fail(Status::kDeadline, "the plan was not found within timeout_ns: the costs of its ops were being worked out");
  }
}

uint32_t PlanModel::add_variable(size_t size) {
  problem_.sizes.push_back(static_cast<uint32_t>(size));
  problem_.bytes.emplace_back(size, 0);
  return static_cast<uint32_t>(problem_.sizes.size() - 1);
}

void PlanModel::add_leaf(size_t leaf, const std::optional<Spec>& fixed, uint64_t copies) {
  check_time();
  const TracedProgram::Item& item = costs_.program().items()[leaf];
  SpecView view;
  if (fixed) {
    view.values = {without_idle_axes(costs_.mesh(), *fixed)};
  } else {
    Spec spec(item.shape.size());
    Cuts cuts{costs_.mesh(), item.shape, limits_.free_axes, limits_.now.empty() ? nullptr : &limits_.now[leaf], {}};
    list_cuts(0, spec, cuts);
    view.values = std::move(cuts.found);
    has_cuts_ = has_cuts_ || view.values.size() > kMostCuts;
    if (view.values.size() > 1) view.variable = add_variable(view.values.size());
  }
  for (size_t value = 0; value < view.values.size(); ++value) {
    uint64_t bytes = 0;
    const uint64_t once = largest_part(costs_.mesh(), view.values[value], item.shape, item.dtype);
    if (__builtin_mul_overflow(once, copies, &bytes)) bytes = UINT64_MAX;
    add_bytes(view, value, bytes);
  }
  made_.push_back(std::move(view));
}

std::vector<Spec> PlanModel::leaves_of(const std::vector<uint32_t>& values) const {
  std::vector<Spec> leaves;
  for (size_t leaf = 0; leaf < leaf_count_; ++leaf) {
    const SpecView& view = made_[leaf];
    leaves.push_back(view.at(view.variable == kNoVariable ? 0 : values[view.variable]));
  }
  return leaves;
}

// ---- variables of what is alike ----

uint32_t PlanModel::grouped(uint32_t variable, const std::vector<uint32_t>& group_of, uint32_t count) {
  const auto known = groups_.find({variable, group_of});
  if (known != groups_.end()) return known->second;
  const bool drops = std::find(group_of.begin(), group_of.end(), kDropped) != group_of.end();
  has_cuts_ = has_cuts_ || drops;
  const uint32_t made = count == 1 ? kNoVariable : add_variable(count);
  if (count > 1 || drops) {
    std::vector<uint32_t> variables = {variable};
    if (count > 1) variables.push_back(made);
    Costs& costs = known_.groups[group_of];
    if (costs.size() == 0) costs = costs_of_groups(group_of, count);
    problem_.tables.push_back({std::move(variables), costs});
  }
  groups_.emplace(std::pair(variable, group_of), made);
  return made;
}

Costs PlanModel::costs_of_groups(const std::vector<uint32_t>& group_of, uint32_t count) {
  std::vector<Picoseconds> costs;
  for (const uint32_t group : group_of) {
    for (uint32_t each = 0; each < count; ++each) costs.push_back(group == each ? 0 : kImpossible);
  }
  return costs;
}

// Lets the views depend on variables of distinct values, with at most `most` combinations in all.
void PlanModel::group_alike(std::vector<SpecView*> views, size_t most) {
  struct Groups {
    std::vector<uint32_t> group_of;
    uint32_t count = 0;
  };
  std::map<uint32_t, Groups> all;  // by variable
  for (const SpecView* view : views) {
    if (view->variable != kNoVariable) all.try_emplace(view->variable);
  }
  if (all.size() < 2) return;
  for (auto& [variable, groups] : all) {
    std::map<std::string, uint32_t> numbers;
    for (uint32_t value = 0; value < problem_.sizes[variable]; ++value) {
      std::string key;
      for (const SpecView* view : views) {
        if (view->variable == variable) add_spec(key, view->values[value]);
      }
      const auto number = static_cast<uint32_t>(numbers.size());
      groups.group_of.push_back(numbers.try_emplace(std::move(key), number).first->second);
    }
    groups.count = static_cast<uint32_t>(numbers.size());
  }
  // Too many combinations: the largest loses its last group.
  for (;;) {
    size_t count = 1;
    Groups* largest = nullptr;
    for (auto& [variable, groups] : all) {
      if (__builtin_mul_overflow(count, size_t{groups.count}, &count)) count = SIZE_MAX;
      if (largest == nullptr || groups.count > largest->count) largest = &groups;
    }
    if (count <= most) break;
    --largest->count;
    for (uint32_t& group : largest->group_of) {
      if (group != kDropped && group >= largest->count) group = kDropped;
    }
  }
  for (auto& [variable, groups] : all) {
    if (groups.count == problem_.sizes[variable]) continue;
    const uint32_t made = grouped(variable, groups.group_of, groups.count);
    for (SpecView* view : views) {
      if (view->variable != variable) continue;
      std::vector<Spec> values(groups.count);
      for (size_t value = groups.group_of.size(); value-- > 0;) {
        if (groups.group_of[value] != kDropped) values[groups.group_of[value]] = view->values[value];
      }
      *view = {made, std::move(values)};
    }
  }
}

// ---- ops ----

PlanModel::Row PlanModel::row_of(size_t number, const std::vector<SpecView>& inputs, const Combinations& all,
                                 size_t index) {
  const TracedProgram::Step& step = costs_.program().steps()[number];
  Specs specs;
  for (const SpecView& view : inputs) specs.push_back(view.at(all.value(index, view.variable)));
  Row row;
  row.applied = &costs_.apply(number, specs);
  row.cost = row.applied->part.time;
  row.arriving = row.applied->gradients;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!costs_.flow().uses[number][i] || !costs_.flow().steps[number]) continue;
    const size_t item = step.inputs[i];
    if (meets(number, i)) {
      if (limits_.is_rough) make_rough(item, specs[i], row.arriving[i], row.cost);
      continue;
    }
    if (item >= leaf_count_) {
      row.cost = saturating_sum(row.cost, costs_.meet(item, specs[i], {row.applied->gradients[i]}).time);
      continue;
    }
    const auto gradient = costs_.meet_at_leaf(item, specs[i], {row.applied->gradients[i]});
    row.cost = saturating_sum(row.cost, gradient.part.time);
    if (gradient.bucket) row.kinds |= bit_of(*gradient.bucket);
  }
  return row;
}

// Keeps of the gradient only the axes of its sum. Adds to the cost the least that it takes to bring the gradient to the
// cuts of the tensor: on its own, or as a share of one move of all gradients, if these are alike.
void PlanModel::make_rough(size_t item, const Spec& own, Spec& gradient, Picoseconds& cost) const {
  const TracedProgram::Item& what = costs_.program().items()[item];
  Spec there = own.dual();
  there.set_partial(gradient.partial() & ~own.cut());
  if (!places_alike(costs_.mesh(), gradient, there)) {
    const auto time = [&](const Spec& from, const Spec& to) {
      return costs_.moved(what.shape, what.dtype, from, to).time;
    };
    const Picoseconds at_once = time(gradient, own.dual()), sum = time(there, own.dual());
    const bool makes_sum = at_once >= sum;  // else the whole move takes less than the sum alone
    const Picoseconds share = (makes_sum ? at_once - sum : at_once) / costs_.flow().arrivals[item];
    cost = saturating_sum(cost, std::min(time(gradient, there), share));
    if (!makes_sum) there.set_partial(0);
  }
  gradient = Spec(own.rank());
  gradient.set_partial(there.partial());
}

// The inputs that the op leaves in another spec than it found, if later ops read them.
std::vector<bool> PlanModel::changing_inputs(size_t number, const std::vector<SpecView>& inputs,
                                             const std::vector<Row>& rows, const Combinations& all) const {
  const TracedProgram::Step& step = costs_.program().steps()[number];
  std::vector<bool> changing(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (step.inputs[i] == kLeftOut || costs_.flow().last_reader[step.inputs[i]] == number) continue;
    for (size_t index = 0; index < rows.size() && !changing[i]; ++index) {
      changing[i] = rows[index].applied->left[i] != inputs[i].at(all.value(index, inputs[i].variable));
    }
  }
  return changing;
}

// Rows that later steps cannot tell apart have one outcome. The first row's outcome comes first, then all others in
// the order of their costs, the cheapest first.
void PlanModel::number_outcomes(size_t number, OpRows& op) const {
  std::map<std::string, uint32_t> numbers;
  std::vector<Picoseconds> least;
  for (Row& row : op.rows) {
    std::string key(reinterpret_cast<const char*>(&row.kinds), sizeof row.kinds);
    for (const Spec& spec : row.applied->outputs) add_spec(key, spec);
    for (size_t i = 0; i < op.changing.size(); ++i) {
      if (op.changing[i]) add_spec(key, row.applied->left[i]);
      if (meets(number, i)) add_spec(key, row.arriving[i]);
    }
    row.outcome = numbers.try_emplace(std::move(key), static_cast<uint32_t>(numbers.size())).first->second;
    if (row.outcome == least.size()) least.push_back(row.cost);
    least[row.outcome] = std::min(least[row.outcome], row.cost);
  }
  std::vector<uint32_t> order(least.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin() + 1, order.end(), [&least](uint32_t a, uint32_t b) { return least[a] < least[b]; });
  std::vector<uint32_t> place(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  op.one_of.resize(order.size());
  for (uint32_t i = 0; i < op.rows.size(); ++i) {
    op.rows[i].outcome = place[op.rows[i].outcome];
    op.one_of[op.rows[i].outcome] = i;
  }
}

const PlanModel::OpRows& PlanModel::rows_of(size_t number, const std::vector<SpecView>& inputs,
                                            const Combinations& all) {
  std::string key = std::to_string(costs_.class_of(number)) + ' ';
  for (size_t i = 0; i < inputs.size(); ++i) {
    all.add_view(key, inputs[i]);
    const size_t item = costs_.program().steps()[number].inputs[i];
    if (item == kLeftOut) continue;
    key.push_back(item < leaf_count_ ? 'l' : 'r');
    key.push_back(costs_.flow().last_reader[item] == number ? '.' : ',');
    key += std::to_string(costs_.flow().arrivals[item]) + ' ';
  }
  const auto known = known_.ops.find(key);
  if (known != known_.ops.end()) return known->second;
  return known_.ops.emplace(std::move(key), work_out(number, inputs, all)).first->second;
}

PlanModel::OpRows PlanModel::work_out(size_t number, const std::vector<SpecView>& inputs, const Combinations& all) {
  OpRows op;
  for (size_t index = 0; index < all.count(); ++index) {
    if (index % kRowsUnasked == 0) check_time();
    op.rows.push_back(row_of(number, inputs, all, index));
  }
  known_.rows += op.rows.size();
  op.changing = changing_inputs(number, inputs, op.rows, all);
  // With one variable, all results depend on that: the op needs no variable of its own.
  const bool is_new = all.variables().size() > 1;
  if (is_new) {
    number_outcomes(number, op);
    const size_t most = std::max<size_t>(1, limits_.most_rows / op.rows.size());
    has_cuts_ = has_cuts_ || op.one_of.size() > most;
    op.count = static_cast<uint32_t>(std::min(op.one_of.size(), most));
  } else {
    op.count = static_cast<uint32_t>(op.rows.size());
    for (uint32_t index = 0; index < op.count; ++index) {
      op.rows[index].outcome = index;
      op.one_of.push_back(index);
    }
  }
  op.costs = costs_of(op, is_new && op.count > 1);
  return op;
}

// The table of an op; `has_outcome`: with a last variable for the op's own outcome. Outcomes from `count` on are
// impossible.
Costs PlanModel::costs_of(const OpRows& op, bool has_outcome) {
  std::vector<Picoseconds> costs;
  for (const Row& row : op.rows) {
    if (!has_outcome) {
      costs.push_back(row.outcome < op.count ? row.cost : kImpossible);
      continue;
    }
    for (uint32_t each = 0; each < op.count; ++each) costs.push_back(each == row.outcome ? row.cost : kImpossible);
  }
  return costs;
}

void PlanModel::add_step(size_t number) {
  check_time();
  const TracedProgram::Step& step = costs_.program().steps()[number];
  std::vector<SpecView> inputs;
  std::vector<SpecView*> views;
  for (const size_t item : step.inputs) inputs.push_back(item == kLeftOut ? SpecView() : now_[item]);
  for (SpecView& view : inputs) views.push_back(&view);
  group_alike(views, limits_.most_combinations / std::max<size_t>(1, views.size() / kFewInputs));
  if (has_cuts_ && limits_.ends_at_cuts) return;
  std::vector<uint32_t> variables;
  for (const SpecView& view : inputs) {
    if (view.variable != kNoVariable) variables.push_back(view.variable);
  }
  const Combinations all(std::move(variables), problem_.sizes);
  const OpRows& op = rows_of(number, inputs, all);
  const uint32_t count = op.count;
  CostTable table{all.variables(), op.costs};
  uint32_t outcome = kNoVariable;
  if (count > 1 && all.variables().size() > 1) {
    outcome = add_variable(count);
    table.variables.push_back(outcome);
  } else if (count > 1) {
    outcome = all.variables()[0];
  }
  problem_.tables.push_back(std::move(table));
  const auto view_of = [&](const auto& spec_in) {
    SpecView view{outcome, {}};
    for (uint32_t each = 0; each < count; ++each) view.values.push_back(spec_in(op.rows[op.one_of[each]]));
    return view;
  };
  for (size_t i = 0; i < step.op->shapes().size(); ++i) {
    made_[step.first_output + i] = view_of([i](const Row& row) { return row.applied->outputs[i]; });
    now_[step.first_output + i] = made_[step.first_output + i];
  }
  std::vector<Kinds> kinds;
  for (uint32_t each = 0; each < count; ++each) kinds.push_back(op.rows[op.one_of[each]].kinds);
  add_kinds(outcome == kNoVariable ? std::vector<uint32_t>() : std::vector<uint32_t>{outcome}, std::move(kinds));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (op.changing[i]) now_[step.inputs[i]] = view_of([i](const Row& row) { return row.applied->left[i]; });
    if (meets(number, i)) {
      arrivals_[step.inputs[i]].push_back(view_of([i](const Row& row) { return row.arriving[i]; }));
    }
  }
}

// ---- gradients that meet ----

void PlanModel::add_meeting(size_t item) {
  SpecView own = made_[item];
  for (Spec& spec : own.values) spec = spec.dual();
  std::vector<SpecView*> views = {&own};
  for (SpecView& view : arrivals_[item]) views.push_back(&view);
  group_alike(views, SIZE_MAX);
  std::vector<uint32_t> variables;
  for (const SpecView* view : views) {
    if (view->variable != kNoVariable) variables.push_back(view->variable);
  }
  const Combinations all(std::move(variables), problem_.sizes);
  if (all.count() > limits_.most_meeting_rows) {
    has_gaps_ = true;
    return;
  }
  const MeetingRows& meeting = rows_of(item, own, all);
  problem_.tables.push_back({all.variables(), meeting.costs});
  if (item < leaf_count_) add_kinds(all.variables(), meeting.kinds);
}

const PlanModel::MeetingRows& PlanModel::rows_of(size_t item, const SpecView& own, const Combinations& all) {
  const TracedProgram::Item& what = costs_.program().items()[item];
  std::string key(item < leaf_count_ ? "l" : "r");
  key += std::to_string(static_cast<int>(what.dtype));
  for (const int64_t size : what.shape) key += ' ' + std::to_string(size);
  key.push_back(';');
  all.add_view(key, own);
  for (const SpecView& view : arrivals_[item]) all.add_view(key, view);
  const auto known = known_.meetings.find(key);
  if (known != known_.meetings.end()) return known->second;
  return known_.meetings.emplace(std::move(key), work_out(item, own, all)).first->second;
}

PlanModel::MeetingRows PlanModel::work_out(size_t item, const SpecView& own, const Combinations& all) {
  MeetingRows meeting;
  std::vector<Picoseconds> costs;
  for (size_t index = 0; index < all.count(); ++index) {
    if (index % kRowsUnasked == 0) check_time();
    Specs arrivals;
    for (const SpecView& view : arrivals_[item]) arrivals.push_back(view.at(all.value(index, view.variable)));
    const Spec& lying = own.at(all.value(index, own.variable));
    for (Spec& arrival : arrivals) {
      if (!limits_.is_rough) break;
      const AxisSet partial = arrival.partial() & ~lying.cut();
      arrival = lying;
      arrival.set_partial(partial);
    }
    if (item >= leaf_count_) {
      costs.push_back(costs_.meet(item, lying, arrivals).time);
      continue;
    }
    const auto gradient = costs_.meet_at_leaf(item, lying, arrivals);
    costs.push_back(gradient.part.time);
    meeting.kinds.push_back(gradient.bucket ? bit_of(*gradient.bucket) : 0);
  }
  known_.rows += all.count();
  meeting.costs = std::move(costs);
  return meeting;
}

// ---- buckets ----

PlanModel::Kinds PlanModel::bit_of(const StepCosts::BucketKind& kind) {
  const auto number = static_cast<uint32_t>(kinds_.size());
  return Kinds{1} << std::min<uint32_t>(kinds_.try_emplace(kind, number).first->second, 31);
}

void PlanModel::add_kinds(std::vector<uint32_t> variables, std::vector<Kinds> kinds) {
  if (std::any_of(kinds.begin(), kinds.end(), [](Kinds each) { return each != 0; })) {
    kind_tables_.push_back({std::move(variables), std::move(kinds)});
  }
}

void PlanModel::close_kinds() {
  if (kinds_.empty()) return;
  if (kinds_.size() > kMostKinds) {
    has_gaps_ = true;
    return;
  }
  const uint32_t count = uint32_t{1} << kinds_.size();
  const uint32_t there = add_variable(count);
  std::vector<Picoseconds> starts(count);
  for (const auto& [kind, bit] : kinds_) {
    for (uint32_t each = 0; each < count; ++each) {
      if ((each >> bit & 1) == 0) continue;
      starts[each] = saturating_sum(starts[each], costs_.costs().exchange(kind.axes));
    }
  }
  problem_.tables.push_back({{there}, std::move(starts)});
  std::map<std::vector<Kinds>, Costs> known;
  for (KindTable& needed : kind_tables_) {
    Costs& costs = known[needed.kinds];
    if (costs.size() == 0) {
      std::vector<Picoseconds> made;
      for (const Kinds kinds : needed.kinds) {
        for (uint32_t each = 0; each < count; ++each) made.push_back((kinds & ~each) == 0 ? 0 : kImpossible);
      }
      costs = std::move(made);
    }
    needed.variables.push_back(there);
    problem_.tables.push_back({std::move(needed.variables), costs});
  }
}

// ---- memory ----

void PlanModel::add_bytes(const SpecView& view, size_t value, uint64_t bytes) {
  uint64_t& sum = view.variable == kNoVariable ? fixed_bytes_ : problem_.bytes[view.variable][value];
  sum = saturating_sum(sum, bytes);
}

void PlanModel::add_activations() {
  const TracedProgram& program = costs_.program();
  const std::vector<bool> kept = kept_results(program, costs_.flow());
  for (size_t item = leaf_count_; item < kept.size(); ++item) {
    if (!kept[item]) continue;
    const SpecView& view = made_[item];
    for (size_t value = 0; value < view.values.size(); ++value) {
      const uint64_t bytes =
          largest_part(costs_.mesh(), view.values[value], program.items()[item].shape, program.items()[item].dtype);
      add_bytes(view, value, bytes);
    }
  }
}

}  // namespace distag::spmd
