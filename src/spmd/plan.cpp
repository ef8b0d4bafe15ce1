#include "spmd/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "autograd/autograd.h"
#include "base/error.h"
#include "layout/placement.h"
#include "layout/spec_text.h"
#include "spmd/marking.h"
#include "spmd/plan_choice.h"
#include "spmd/plan_costs.h"
#include "spmd/sharding.h"
#include "spmd/spec_completion.h"
#include "tensor/shape_only.h"

namespace distag::spmd {
namespace {

using layout::MeshShape;
using layout::Spec;

constexpr size_t kMostNamed = 3;       // names in a message
constexpr size_t kLongestNamed = 128;  // bytes of one
constexpr const char* kMarked = "marked already";

std::string shown(std::string_view name) {
  return std::string(name.substr(0, kLongestNamed)) + (name.size() > kLongestNamed ? "..." : "");
}

// The edit distance at the best alignment (Levenshtein).
size_t distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kLongestNamed);
  b = b.substr(0, kLongestNamed);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

template <typename Leaves>
std::string nearest_names(const std::string& pattern, const Leaves& leaves) {
  std::vector<std::pair<size_t, std::string>> names;
  for (const auto& leaf : leaves) names.emplace_back(distance(pattern, leaf.name), leaf.name);
  std::sort(names.begin(), names.end());
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) {
    text += (i == 0 ? "\"" : ", \"") + shown(names[i].second) + "\"";
  }
  return text.empty() ? "no leaves at all" : text;
}

bool is_same_mesh(const MeshShape& a, const MeshShape& b) {
  return a.sizes() == b.sizes() && a.axis_names() == b.axis_names() && a.ranks() == b.ranks();
}

// Checks that the spec fits the leaf, and prints it in the first notation.
std::string check_spec(const MeshShape& mesh, const Tensor& tensor, const std::string& text, Spec& spec) {
  spec = parse_spec(mesh, text, tensor.rank());
  check_shape(mesh, spec, tensor.shape(), dtype_size(tensor.dtype()));
  if (mesh.used(spec.partial()) != 0) {
    fail(Status::kInvalidArgument, "{} is a sum, which only from_local can make", text);
  }
  return print_spec(mesh, spec);
}

uint64_t bytes_of(const MeshShape& mesh, const Spec& spec, const Tensor& tensor, int64_t position) {
  return static_cast<uint64_t>(box_of(mesh, spec, tensor.shape(), position).count()) * dtype_size(tensor.dtype());
}

// A hash of the program, and of its leaves by name, whatever their order is.
uint64_t hash_of(const TracedProgram& program, const std::vector<PlanLeaf>& leaves) {
  std::map<uint64_t, size_t> places;
  for (size_t i = 0; i < program.leaves().size(); ++i) places.emplace(program.leaves()[i].id(), i);
  std::map<std::string_view, uint64_t> named;
  for (const PlanLeaf& leaf : leaves) named.emplace(leaf.name, leaf.tensor.id());
  Fingerprint fingerprint;
  fingerprint.add(program.hash()).add(named.size());
  for (const auto& [name, id] : named) {
    const auto found = places.find(id);
    fingerprint.add(name).add(found == places.end() ? TracedProgram::kNone : found->second);
  }
  return fingerprint.value();
}

// The spec that a leaf has been marked with. Throws INVALID_ARGUMENT if that is on another mesh.
std::optional<Spec> marked_spec(const MeshShape& mesh, const Tensor& leaf, const std::string& name) {
  const Sharding* sharding = Sharding::of(leaf);
  if (sharding == nullptr) return std::nullopt;
  if (!is_same_mesh(mesh, sharding->program().shape())) {
    fail(Status::kInvalidArgument, "{} is sharded as {}, and the plan is for another mesh", name, sharding->describe());
  }
  return sharding->lying().spec;
}

}  // namespace

// Follows all places of the pattern that the name so far may have reached, so the time is at most that of both lengths
// multiplied.
bool fits(std::string_view pattern, std::string_view name) {
  struct Item {
    char letter;  // '*' takes any letters but dots, '+' any letters
    bool is_star;
  };
  std::vector<Item> items;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool is_double = pattern.substr(i).starts_with("**");
    items.push_back({is_double ? '+' : pattern[i], pattern[i] == '*'});
    if (is_double) ++i;
  }
  std::vector<char> at(items.size() + 1), next(items.size() + 1);
  const auto reach = [&items](std::vector<char>& places, size_t place) {
    for (places[place] = 1; place < items.size() && items[place].is_star; ++place) places[place + 1] = 1;
  };
  reach(at, 0);
  for (const char letter : name) {
    std::fill(next.begin(), next.end(), 0);
    for (size_t i = 0; i < items.size(); ++i) {
      if (at[i] == 0) continue;
      const Item& item = items[i];
      if (item.is_star && (item.letter == '+' || letter != '.')) reach(next, i);
      if (!item.is_star && (item.letter == letter || item.letter == '?')) reach(next, i + 1);
    }
    std::swap(at, next);
  }
  return at.back() != 0;
}

Plan::Plan(const MeshShape& mesh, PlanSettings settings) : mesh_(mesh), source_(settings.source) {
  std::set<std::string_view> names;
  for (const PlanLeaf& leaf : settings.leaves) {
    if (!names.insert(leaf.name).second) {
      fail(Status::kInvalidArgument, "two leaves have the name \"{}\"", shown(leaf.name));
    }
  }
  if (source_ < -1 || source_ >= mesh.count()) {
    fail(Status::kInvalidArgument, "source is {}, not -1 or the position of one of the {} members", source_,
         mesh.count());
  }
  std::optional<TracedProgram> program;
  if (!settings.roots.empty()) program.emplace(settings.roots);
  PlanReport report;
  if (program) report.program = hash_of(*program, settings.leaves);
  if (settings.saved) {
    report.program = place_as_saved(settings, report.program, report.search);
  } else {
    place_by_rules(settings);
  }
  if (program && settings.is_automatic && !settings.saved) {
    choose(*program, settings, report);
  } else if (program) {
    complete(*program);
  }
  report.memory = saturating_sum(count_memory(settings), report.search ? report.search->activations : 0);
  check_memory(settings, report.memory);
  for (const Placed& leaf : leaves_) {
    report.leaves.push_back({leaf.name, leaf.tensor.dtype(), leaf.tensor.shape(), leaf.text, leaf.why});
  }
  report.ops = std::move(ops_);
  report_ = write_plan_report(mesh_, report);
  if (report.search) report.search->counts = StepCounts();  // the bytes are those of this member
  hash_ = Fingerprint().add(write_plan_report(mesh_, report)).value();
}

void Plan::place_by_rules(const PlanSettings& settings) {
  for (const PlanRule& rule : settings.rules) {
    const bool fits_any = std::any_of(settings.leaves.begin(), settings.leaves.end(),
                                      [&rule](const PlanLeaf& leaf) { return fits(rule.pattern, leaf.name); });
    if (fits_any) continue;
    fail(Status::kInvalidArgument, "the pattern \"{}\" fits no leaf; the nearest are {}", shown(rule.pattern),
         nearest_names(rule.pattern, settings.leaves));
  }
  for (const PlanLeaf& leaf : settings.leaves) {
    const auto rule = std::find_if(settings.rules.begin(), settings.rules.end(),
                                   [&leaf](const PlanRule& each) { return fits(each.pattern, leaf.name); });
    const auto marked = marked_spec(mesh_, leaf.tensor, fmt::format("leaf \"{}\"", shown(leaf.name)));
    Placed placed{leaf.name, leaf.tensor, Spec(leaf.tensor.rank()), "", "no rule fits it: repeated", false};
    if (rule == settings.rules.end() && marked) {
      if (mesh_.used(marked->partial()) != 0) {
        fail(Status::kInvalidArgument, "leaf \"{}\" is a sum of what members hold, {}: redistribute it first",
             shown(leaf.name), print_spec(mesh_, *marked));
      }
      placed.spec = *marked;
      placed.text = print_spec(mesh_, *marked);
      placed.why = kMarked;
      leaves_.push_back(std::move(placed));
      continue;
    }
    try {
      const std::string text = rule == settings.rules.end() ? print_spec(mesh_, placed.spec) : rule->spec;
      placed.text = check_spec(mesh_, leaf.tensor, text, placed.spec);
    } catch (...) {
      const std::string of = rule == settings.rules.end()
                                 ? fmt::format("leaf \"{}\"", shown(leaf.name))
                                 : fmt::format("rule \"{}\" does not suit leaf \"{}\" {}", shown(rule->pattern),
                                               shown(leaf.name), describe(leaf.tensor));
      throw current_error().add_context(of);
    }
    placed.is_open = rule == settings.rules.end();
    if (!placed.is_open) placed.why = fmt::format("rule \"{}\"", rule->pattern);
    leaves_.push_back(std::move(placed));
  }
  place_same_tensors();
}

// A leaf without a rule, or marked already, takes the spec of a leaf with a rule that is the same tensor.
void Plan::place_same_tensors() {
  std::map<uint64_t, size_t> ruled;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (!leaves_[i].is_open && leaves_[i].why != kMarked) ruled.emplace(leaves_[i].tensor.id(), i);
  }
  for (Placed& leaf : leaves_) {
    const auto found = ruled.find(leaf.tensor.id());
    if (found == ruled.end() || (!leaf.is_open && leaf.why != kMarked)) continue;
    leaf.spec = leaves_[found->second].spec;
    leaf.text = leaves_[found->second].text;
    leaf.why = "the same tensor has a rule";
    leaf.is_open = false;
  }
}

std::optional<uint64_t> Plan::place_as_saved(const PlanSettings& settings, std::optional<uint64_t> program,
                                             std::optional<ReportedSearch>& saved_search) {
  if (!settings.rules.empty())
    fail(Status::kInvalidArgument, "both saved and rules are given: a saved plan has its own");
  PlanReport report = read_plan_report(mesh_, program, *settings.saved);
  std::map<std::string, ReportedLeaf> saved;
  for (ReportedLeaf& leaf : report.leaves) {
    std::string name = leaf.name;
    if (!saved.emplace(name, std::move(leaf)).second) {
      fail(Status::kInvalidArgument, "saved: two leaves have the name \"{}\"", shown(name));
    }
  }
  if (saved.size() != settings.leaves.size()) {
    fail(Status::kInvalidArgument, "saved: a plan for {} leaves, not {}", saved.size(), settings.leaves.size());
  }
  for (const PlanLeaf& leaf : settings.leaves) {
    const auto found = saved.find(leaf.name);
    if (found == saved.end()) fail(Status::kInvalidArgument, "saved: it has no leaf \"{}\"", shown(leaf.name));
    const ReportedLeaf& told = found->second;
    if (told.shape != leaf.tensor.shape() || told.dtype != leaf.tensor.dtype()) {
      fail(Status::kInvalidArgument, "saved: leaf \"{}\" is {}{}, and here {}", shown(leaf.name),
           dtype_name(told.dtype), to_string(told.shape), describe(leaf.tensor));
    }
    Placed placed{leaf.name, leaf.tensor, Spec(leaf.tensor.rank()), "", told.why, false};
    try {
      placed.text = check_spec(mesh_, leaf.tensor, told.spec, placed.spec);
    } catch (...) {
      throw current_error().add_context(fmt::format("saved: leaf \"{}\"", shown(leaf.name)));
    }
    leaves_.push_back(std::move(placed));
  }
  ops_ = std::move(report.ops);
  saved_search = report.search;
  return report.program;
}

namespace {

const char* describe_moves(layout::MoveClass moves) {
  switch (moves) {
    case layout::MoveClass::kNone:
      return "nothing moves";
    case layout::MoveClass::kParameters:
      return "parameters are gathered, or parts of sums added";
    case layout::MoveClass::kData:
      return "data move";
  }
  return "";
}

}  // namespace

std::vector<std::optional<Spec>> Plan::fixed_specs(const TracedProgram& program, const Places& places) const {
  // Leaves without a name are not marked: they stay as they are.
  std::vector<std::optional<Spec>> fixed;
  for (const Tensor& leaf : program.leaves()) {
    const auto marked = marked_spec(mesh_, leaf, fmt::format("an input of the program, {},", describe(leaf)));
    fixed.push_back(marked ? *marked : Spec(leaf.rank()));
  }
  std::vector<bool> is_named(fixed.size());
  for (const Placed& leaf : leaves_) {
    const auto found = places.find(leaf.tensor.id());
    if (found == places.end()) continue;
    is_named[found->second] = true;
    fixed[found->second] = leaf.is_open ? std::nullopt : std::optional(leaf.spec);
  }
  if (!leaves_.empty() && std::find(is_named.begin(), is_named.end(), true) == is_named.end()) {
    fail(Status::kInvalidArgument,
         "the program of the roots uses none of the {} leaves: give the tensors that it was run with", leaves_.size());
  }
  return fixed;
}

void Plan::place_open(const Places& places, const std::vector<Spec>& specs, const Why& why) {
  for (Placed& leaf : leaves_) {
    const auto found = places.find(leaf.tensor.id());
    if (!leaf.is_open) continue;
    if (found == places.end()) {
      leaf.why =
          "the program does not use it (or ran it with tensors that have elements only: give it shapes): repeated";
      continue;
    }
    leaf.spec = specs[found->second];
    leaf.text = print_spec(mesh_, leaf.spec);
    leaf.why = why(found->second);
  }
}

void Plan::note_ops(const TracedProgram& program, const std::vector<Spec>& results,
                    const std::vector<layout::MoveClass>& moves) {
  ops_.clear();
  for (size_t i = 0; i < program.steps().size(); ++i) {
    const char* const name = program.steps()[i].op->op().name;
    ops_.push_back({name, print_spec(mesh_, results[i]), describe_moves(moves[i])});
  }
}

namespace {

std::map<uint64_t, size_t> places_in(const TracedProgram& program) {
  std::map<uint64_t, size_t> places;
  for (size_t i = 0; i < program.leaves().size(); ++i) places.emplace(program.leaves()[i].id(), i);
  return places;
}

// The number of times that a leaf's bytes count: a trained leaf has a gradient and the optimizer's copies too.
uint64_t copies_of(const Tensor& leaf, const PlanSettings& settings) {
  const bool is_trained = !settings.is_inference && autograd::requires_grad(leaf);
  return is_trained ? uint64_t{2} + settings.optimizer_copies : 1;
}

double seconds_of(Picoseconds time) { return static_cast<double>(time) / 1e12; }

}  // namespace

void Plan::complete(const TracedProgram& program) {
  const Places places = places_in(program);
  const SpecCompletion completion(mesh_, program, fixed_specs(program, places));
  std::vector<Spec> specs, results;
  std::vector<layout::MoveClass> moves;
  for (size_t leaf = 0; leaf < program.leaves().size(); ++leaf) specs.push_back(completion.spec_of(leaf));
  for (size_t i = 0; i < program.steps().size(); ++i) {
    results.push_back(completion.result_of(i));
    moves.push_back(completion.moves_of(i));
  }
  place_open(places, specs, [&completion](size_t leaf) { return completion.why(leaf); });
  note_ops(program, results, moves);
}

void Plan::choose(const TracedProgram& program, const PlanSettings& settings, PlanReport& report) {
  const Places places = places_in(program);
  const PlanCosts costs(mesh_, settings.costs);
  StepPolicy policy = settings.policy;
  policy.is_inference = settings.is_inference;
  policy.marking_order.resize(program.leaves().size());
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const auto found = places.find(leaves_[i].tensor.id());
    // Leaves that are marked already were marked before all others.
    const bool is_marked = leaves_[i].why == kMarked;
    if (found != places.end()) policy.marking_order[found->second] = is_marked ? i : leaves_.size() + i;
  }
  StepCosts step(mesh_, program, costs, policy);
  ChoiceRequest request;
  request.fixed = fixed_specs(program, places);
  request.copies.resize(request.fixed.size());
  request.memory_bytes = settings.memory_bytes;
  request.is_over = settings.is_over;
  for (const Placed& leaf : leaves_) {
    const auto found = places.find(leaf.tensor.id());
    if (found != places.end()) {
      request.copies[found->second] += copies_of(leaf.tensor, settings);
    } else {
      const uint64_t bytes = largest_part(mesh_, leaf.spec, leaf.tensor.shape(), leaf.tensor.dtype());
      uint64_t all = 0;
      if (__builtin_mul_overflow(bytes, copies_of(leaf.tensor, settings), &all)) all = UINT64_MAX;
      request.other_bytes = saturating_sum(request.other_bytes, all);
    }
  }
  const SpecChoice choice = choose_specs(step, request);
  place_open(places, choice.leaves, [&choice](size_t leaf) { return choice.why[leaf]; });
  note_ops(program, choice.step.results, choice.step.moves);
  report.search = ReportedSearch{seconds_of(choice.step.part.time), seconds_of(choice.bound), costs.report(),
                                 choice.step.activation_bytes, choice.step.part.counts};
}

// Bytes of the member that needs the most: its parts and, for trained leaves, gradients and the optimizer's copies.
uint64_t Plan::count_memory(const PlanSettings& settings) const {
  uint64_t most = 0;
  for (int64_t position = 0; position < mesh_.count(); ++position) {
    uint64_t bytes = 0;
    for (const Placed& leaf : leaves_) {
      const uint64_t copies = copies_of(leaf.tensor, settings);
      const uint64_t own = bytes_of(mesh_, leaf.spec, leaf.tensor, position);
      uint64_t all = 0;
      if (__builtin_mul_overflow(own, copies, &all) || __builtin_add_overflow(bytes, all, &bytes)) return UINT64_MAX;
    }
    most = std::max(most, bytes);
  }
  return most;
}

void Plan::check_memory(const PlanSettings& settings, uint64_t memory) const {
  if (settings.memory_bytes == 0 || memory <= settings.memory_bytes) return;
  const auto largest = std::max_element(leaves_.begin(), leaves_.end(), [this](const Placed& a, const Placed& b) {
    return bytes_of(mesh_, a.spec, a.tensor, 0) < bytes_of(mesh_, b.spec, b.tensor, 0);
  });
  fail(Status::kOutOfMemory,
       "a member needs {} bytes by these rules, and memory_bytes is {}; the largest leaf is \"{}\"", memory,
       settings.memory_bytes, shown(largest->name));
}

const char* Plan::spec_of(std::string_view name) const {
  for (const Placed& leaf : leaves_) {
    if (leaf.name == name) return leaf.text.c_str();
  }
  return nullptr;
}

void Plan::apply(const Line& line, bool together) const {
  if (!is_same_mesh(mesh_, line.program->shape())) {
    fail(Status::kInvalidArgument, "the plan is for another mesh than \"{}\": sizes, names of axes or ranks differ",
         line.program->shape().name());
  }
  std::vector<Marking> markings;
  for (const Placed& leaf : leaves_) {
    if (!is_shape_only(leaf.tensor)) markings.push_back({leaf.name, leaf.tensor, leaf.text});
  }
  const std::string what =
      fmt::format("plan_apply({} leaves, plan {:016x}, source {})", leaves_.size(), hash_, source_);
  mark_all(markings, line, what, source_, together);
}

}  // namespace distag::spmd
