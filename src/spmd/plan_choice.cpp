#include "spmd/plan_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "base/error.h"
#include "spmd/plan_model.h"
#include "spmd/spec_completion.h"

namespace distag::spmd {

using layout::AxisSet;
using layout::Spec;

namespace {

// Leaves times steps. Beyond this limit, a report does not work out what the cuts of each leaf save.
constexpr size_t kMostExplained = size_t{1} << 16;
constexpr size_t kMostRoughRows = size_t{1} << 15;
constexpr size_t kMostSearchRows = size_t{1} << 22;
constexpr uint64_t kMostSearchSteps = uint64_t{1} << 30;  // of all searches for a choice
constexpr size_t kMostAxesAtOnce = 2;                     // of more, tables of most programs are too large
constexpr size_t kMostRounds = 8;                         // through all pairs of axes

// Axes along which there are several members.
size_t wide_axes(const layout::MeshShape& mesh) {
  return static_cast<size_t>(std::count_if(mesh.sizes().begin(), mesh.sizes().end(), [](int64_t n) { return n > 1; }));
}

std::string microseconds(Picoseconds time) { return fmt::format("{}.{:06} us", time / 1'000'000, time % 1'000'000); }

void check_over(const ChoiceRequest& request) {
  if (request.is_over && request.is_over()) {
    fail(Status::kDeadline, "the plan was not found within timeout_ns: ask for more, or give rules for some leaves");
  }
}

uint64_t needed_bytes(const StepCosts& costs, const ChoiceRequest& request, const std::vector<Spec>& leaves,
                      const PlannedStep& step) {
  uint64_t bytes = saturating_sum(request.other_bytes, step.activation_bytes);
  for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
    const TracedProgram::Item& item = costs.program().items()[leaf];
    uint64_t all = 0;
    const uint64_t once = largest_part(costs.mesh(), leaves[leaf], item.shape, item.dtype);
    if (__builtin_mul_overflow(once, request.copies[leaf], &all)) return UINT64_MAX;
    bytes = saturating_sum(bytes, all);
  }
  return bytes;
}

bool fits_memory(const StepCosts& costs, const ChoiceRequest& request, const SpecChoice& choice) {
  return request.memory_bytes == 0 || needed_bytes(costs, request, choice.leaves, choice.step) <= request.memory_bytes;
}

// Whether the one choice alone is possible, or a member with it needs no more memory than is allowed, or than with the
// other, and takes less time if memory does not decide.
bool is_better(const StepCosts& costs, const ChoiceRequest& request, const SpecChoice& one, const SpecChoice& other) {
  const auto beyond = [&](const SpecChoice& choice) {
    if (request.memory_bytes == 0) return uint64_t{0};
    const uint64_t needed = needed_bytes(costs, request, choice.leaves, choice.step);
    return needed > request.memory_bytes ? needed - request.memory_bytes : 0;
  };
  const auto rank = [&](const SpecChoice& choice) {
    const Picoseconds time = choice.step.part.time;
    return std::tuple(time == kImpossible, beyond(choice), time);
  };
  return rank(one) < rank(other);
}

// Another choice, if it is better.
void try_leaves(StepCosts& costs, const ChoiceRequest& request, std::vector<Spec> leaves, SpecChoice& choice) {
  SpecChoice other;
  other.leaves = std::move(leaves);
  other.step = plan_step(costs, other.leaves);
  if (!is_better(costs, request, other, choice)) return;
  choice.leaves = std::move(other.leaves);
  choice.step = std::move(other.step);
}

// Tries the specs that follow from the fixed leaves: another choice, as the search may have missed some.
void try_completion(StepCosts& costs, const ChoiceRequest& request, SpecChoice& choice) {
  const SpecCompletion completion(costs.mesh(), costs.program(), request.fixed);
  std::vector<Spec> leaves;
  for (size_t leaf = 0; leaf < request.fixed.size(); ++leaf) leaves.push_back(completion.spec_of(leaf));
  try_leaves(costs, request, std::move(leaves), choice);
}

std::string reason_of(StepCosts& costs, const ChoiceRequest& request, const SpecChoice& choice, size_t leaf) {
  if (places_alike(costs.mesh(), choice.leaves[leaf], Spec(choice.leaves[leaf].rank()))) {
    return "no cut of it saves time: repeated";
  }
  if (costs.program().steps().size() * choice.leaves.size() > kMostExplained) return "found by the search";
  SpecChoice repeated;
  repeated.leaves = choice.leaves;
  repeated.leaves[leaf] = Spec(choice.leaves[leaf].rank());
  repeated.step = plan_step(costs, repeated.leaves);
  if (repeated.step.part.time == kImpossible) return "repeated, no step would be possible";
  const Picoseconds time = choice.step.part.time, other = repeated.step.part.time;
  if (other > time) return fmt::format("saves {} of a step, over repeated", microseconds(other - time));
  if (!fits_memory(costs, request, repeated)) return "repeated it would pass memory_bytes";
  return "saves memory, and takes no time over repeated";
}

// Exact, unless the tables where gradients meet are too large.
std::unique_ptr<const PlanModel> make_model(StepCosts& costs, const ChoiceRequest& request, PlanModel::Limits limits) {
  limits.is_over = request.is_over;
  auto model = std::make_unique<const PlanModel>(costs, request.fixed, request.copies, limits);
  if (!model->has_gaps()) return model;
  limits.is_rough = true;
  limits.most_meeting_rows = kMostRoughRows;
  return std::make_unique<const PlanModel>(costs, request.fixed, request.copies, limits);
}

// Takes the steps of the search from those that are left.
SearchResult search_model(const PlanModel& model, const ChoiceRequest& request, uint64_t& steps_left) {
  SearchProblem problem = model.problem();
  const uint64_t fixed = saturating_sum(model.fixed_bytes(), request.other_bytes);
  // With no memory left for the chosen leaves, the search still has to find the least that they need.
  if (request.memory_bytes != 0) {
    problem.memory_bytes = request.memory_bytes > fixed ? request.memory_bytes - fixed : 1;
  }
  SearchLimits limits;
  limits.most_rows = kMostSearchRows;
  limits.most_steps = steps_left;
  limits.is_over = request.is_over;
  SearchResult found = search(problem, limits);
  steps_left -= std::min(steps_left, found.steps);
  return found;
}

// The leaves that the search found. If it gave up: the specs that follow from fixed leaves, or replicated ones.
std::vector<Spec> leaves_found(const PlanModel& model, const SearchResult& found) {
  if (found.cost == kImpossible && found.fits) {
    return model.leaves_of(std::vector<uint32_t>(model.problem().sizes.size()));
  }
  return model.leaves_of(found.values);
}

// Chooses the places of two axes together, with all other axes where they are: pair by pair, as long as one makes the
// choice better, and steps are left. All axes at once have too many cuts for tables. With only two
// axes, one is chosen after the other.
void choose_by_pairs(StepCosts& costs, const ChoiceRequest& request, uint64_t steps_left, SpecChoice& choice) {
  if (wide_axes(costs.mesh()) < 2) return;
  const bool is_alone = wide_axes(costs.mesh()) <= kMostAxesAtOnce;
  std::vector<AxisSet> pairs;
  for (size_t b = 0; b < costs.mesh().axis_count(); ++b) {
    if (costs.mesh().size(b) == 1) continue;
    if (is_alone) pairs.push_back(AxisSet{1} << b);
    for (size_t a = 0; a < b && !is_alone; ++a) {
      if (costs.mesh().size(a) > 1) pairs.push_back(AxisSet{1} << a | AxisSet{1} << b);
    }
  }
  size_t idle = 0;  // pairs that were of no use, one after the other
  for (size_t i = 0; idle < pairs.size() && i < kMostRounds * pairs.size() && steps_left > 0; ++i) {
    PlanModel::Limits limits;
    limits.free_axes = pairs[i % pairs.size()];
    limits.now = choice.leaves;
    const auto model = make_model(costs, request, limits);
    const std::vector<Spec> before = choice.leaves;
    try_leaves(costs, request, leaves_found(*model, search_model(*model, request, steps_left)), choice);
    idle = choice.leaves == before ? idle + 1 : 0;
  }
}

}  // namespace

SpecChoice choose_specs(StepCosts& costs, const ChoiceRequest& request) {
  const bool has_many_axes = wide_axes(costs.mesh()) > kMostAxesAtOnce;
  PlanModel::Limits limits;
  limits.ends_at_cuts = has_many_axes;
  const auto model = make_model(costs, request, limits);
  SearchResult found;
  SpecChoice choice;
  uint64_t steps_left = kMostSearchSteps;
  if (model->has_cuts() && has_many_axes) {
    found.least_is_exact = false;
    for (size_t leaf = 0; leaf < request.fixed.size(); ++leaf) {
      const size_t rank = costs.program().items()[leaf].shape.size();
      choice.leaves.push_back(request.fixed[leaf].value_or(Spec(rank)));
    }
  } else {
    found = search_model(*model, request, steps_left);
    choice.leaves = leaves_found(*model, found);
  }
  choice.bound = model->has_cuts() ? costs.least_time() : found.bound;
  choice.step = plan_step(costs, choice.leaves);
  if (choice.bound < choice.step.part.time) try_completion(costs, request, choice);
  const bool is_exact = !model->has_cuts() && !model->is_rough() && found.bound == found.cost;
  if (choice.bound < choice.step.part.time && !is_exact) choose_by_pairs(costs, request, steps_left, choice);
  if (choice.step.part.time == kImpossible) {
    fail(Status::kInvalidArgument, "{}",
         costs.policy().refuses_hidden
             ? "found no specs of the leaves without hidden moves, which the mesh forbids: give other rules or other "
               "costs, or make the mesh with DISTAG_HIDDEN_ALLOW"
             : "no specs of the leaves were found by which a step takes a time that can be counted: give other costs");
  }
  choice.bound = std::min(choice.bound, choice.step.part.time);
  if (!fits_memory(costs, request, choice)) {
    const bool is_least = found.least_is_exact && !model->has_cuts() && !found.fits;
    fail(Status::kOutOfMemory, "no specs of the leaves fit memory_bytes, {}: the least {} is {} bytes for a member",
         request.memory_bytes, is_least ? "that would do" : "that was found",
         needed_bytes(costs, request, choice.leaves, choice.step));
  }
  for (size_t leaf = 0; leaf < choice.leaves.size(); ++leaf) {
    check_over(request);
    std::string& why = choice.why.emplace_back();
    if (request.fixed[leaf]) continue;
    why = reason_of(costs, request, choice, leaf);
    if (choice.bound < choice.step.part.time) why += "; others may take less, see bound";
  }
  return choice;
}

}  // namespace distag::spmd
