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

// The cuts along the axes from `axis` on that leave each member some elements; all axes repeated comes first.
void list_cuts(const MeshShape& mesh, const Dims& shape, size_t axis, Spec& spec, std::vector<Spec>& cuts) {
  if (cuts.size() > kMostCuts) return;
  if (axis == mesh.axis_count()) {
    cuts.push_back(spec);
    return;
  }
  list_cuts(mesh, shape, axis + 1, spec, cuts);
  for (size_t d = 0; mesh.size(axis) > 1 && d < shape.size(); ++d) {
    const layout::Axes before = spec.dim(d);
    spec.dim(d).push_back(static_cast<uint8_t>(axis));
    const int64_t parts = mesh.size_of(spec.dim(d));
    if (layout::block_of(shape[d], parts, parts - 1).extent > 0) list_cuts(mesh, shape, axis + 1, spec, cuts);
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

 private:
  std::vector<uint32_t> variables_;
  std::vector<uint32_t> sizes_;
  size_t count_ = 1;
};

// The result of an op for one combination of its inputs.
struct PlanModel::Row {
  const StepCosts::Applied* applied = nullptr;
  Picoseconds cost = 0;
  Kinds kinds = 0;
  uint32_t outcome = 0;
  Specs arriving;  // gradients that meet others, of each input
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
  for (size_t step = 0; step < program.steps().size(); ++step) add_step(step);
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
    view.values.clear();
    Spec spec(item.shape.size());
    list_cuts(costs_.mesh(), item.shape, 0, spec, view.values);
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
    CostTable& table = problem_.tables.emplace_back();
    table.variables = {variable};
    if (count > 1) table.variables.push_back(made);
    for (const uint32_t group : group_of) {
      for (uint32_t each = 0; each < count; ++each) table.costs.push_back(group == each ? 0 : kImpossible);
    }
  }
  groups_.emplace(std::pair(variable, group_of), made);
  return made;
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
void PlanModel::number_outcomes(size_t number, const std::vector<bool>& changing, std::vector<Row>& rows) {
  std::map<std::string, uint32_t> numbers;
  std::vector<Picoseconds> least;
  for (Row& row : rows) {
    std::string key(reinterpret_cast<const char*>(&row.kinds), sizeof row.kinds);
    for (const Spec& spec : row.applied->outputs) add_spec(key, spec);
    for (size_t i = 0; i < changing.size(); ++i) {
      if (changing[i]) add_spec(key, row.applied->left[i]);
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
  for (Row& row : rows) row.outcome = place[row.outcome];
}

// Adds the table of an op; `outcome`: the op's own variable, if it has one. Outcomes from `count` on are impossible.
void PlanModel::add_op_table(const Combinations& all, const std::vector<Row>& rows, uint32_t outcome, uint32_t count) {
  CostTable& table = problem_.tables.emplace_back();
  table.variables = all.variables();
  if (outcome != kNoVariable) table.variables.push_back(outcome);
  for (const Row& row : rows) {
    if (outcome == kNoVariable) {
      table.costs.push_back(row.outcome < count ? row.cost : kImpossible);
      continue;
    }
    for (uint32_t each = 0; each < count; ++each) table.costs.push_back(each == row.outcome ? row.cost : kImpossible);
  }
}

void PlanModel::add_step(size_t number) {
  check_time();
  const TracedProgram::Step& step = costs_.program().steps()[number];
  std::vector<SpecView> inputs;
  std::vector<SpecView*> views;
  for (const size_t item : step.inputs) inputs.push_back(item == kLeftOut ? SpecView() : now_[item]);
  for (SpecView& view : inputs) views.push_back(&view);
  group_alike(views, limits_.most_combinations / std::max<size_t>(1, views.size() / kFewInputs));
  std::vector<uint32_t> variables;
  for (const SpecView& view : inputs) {
    if (view.variable != kNoVariable) variables.push_back(view.variable);
  }
  const Combinations all(std::move(variables), problem_.sizes);
  std::vector<Row> rows;
  for (size_t index = 0; index < all.count(); ++index) {
    if (index % kRowsUnasked == 0) check_time();
    rows.push_back(row_of(number, inputs, all, index));
  }
  const std::vector<bool> changing = changing_inputs(number, inputs, rows, all);
  // With one variable, all results depend on that: the op needs no variable of its own.
  const bool is_new = all.variables().size() > 1;
  uint32_t count = static_cast<uint32_t>(rows.size());
  if (is_new) {
    number_outcomes(number, changing, rows);
    count = 0;
    for (const Row& row : rows) count = std::max(count, row.outcome + 1);
    const auto most = static_cast<uint32_t>(std::max<size_t>(1, limits_.most_rows / rows.size()));
    has_cuts_ = has_cuts_ || count > most;
    count = std::min(count, most);
  } else {
    for (size_t index = 0; index < rows.size(); ++index) rows[index].outcome = static_cast<uint32_t>(index);
  }
  const uint32_t outcome = count == 1 ? kNoVariable : is_new ? add_variable(count) : all.variables()[0];
  add_op_table(all, rows, is_new ? outcome : kNoVariable, count);
  std::vector<const Row*> of_outcome(count);
  for (const Row& row : rows) {
    if (row.outcome < count) of_outcome[row.outcome] = &row;
  }
  const auto view_of = [&](const auto& spec_in) {
    SpecView view{outcome, {}};
    for (const Row* row : of_outcome) view.values.push_back(spec_in(*row));
    return view;
  };
  for (size_t i = 0; i < step.op->shapes().size(); ++i) {
    made_[step.first_output + i] = view_of([i](const Row& row) { return row.applied->outputs[i]; });
    now_[step.first_output + i] = made_[step.first_output + i];
  }
  std::vector<Kinds> kinds;
  for (const Row* row : of_outcome) kinds.push_back(row->kinds);
  add_kinds(outcome == kNoVariable ? std::vector<uint32_t>() : std::vector<uint32_t>{outcome}, std::move(kinds));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (changing[i]) now_[step.inputs[i]] = view_of([i](const Row& row) { return row.applied->left[i]; });
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
  CostTable table{all.variables(), {}};
  std::vector<Kinds> kinds;
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
      table.costs.push_back(costs_.meet(item, lying, arrivals).time);
      continue;
    }
    const auto gradient = costs_.meet_at_leaf(item, lying, arrivals);
    table.costs.push_back(gradient.part.time);
    kinds.push_back(gradient.bucket ? bit_of(*gradient.bucket) : 0);
  }
  problem_.tables.push_back(std::move(table));
  if (item < leaf_count_) add_kinds(all.variables(), std::move(kinds));
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
  CostTable starts{{there}, std::vector<Picoseconds>(count)};
  for (const auto& [kind, bit] : kinds_) {
    for (uint32_t each = 0; each < count; ++each) {
      if ((each >> bit & 1) == 0) continue;
      starts.costs[each] = saturating_sum(starts.costs[each], costs_.costs().exchange(kind.axes));
    }
  }
  problem_.tables.push_back(std::move(starts));
  for (KindTable& needed : kind_tables_) {
    CostTable table{std::move(needed.variables), {}};
    table.variables.push_back(there);
    for (const Kinds kinds : needed.kinds) {
      for (uint32_t each = 0; each < count; ++each) table.costs.push_back((kinds & ~each) == 0 ? 0 : kImpossible);
    }
    problem_.tables.push_back(std::move(table));
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
