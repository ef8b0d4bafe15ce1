#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layout/spec.h"
#include "spmd/plan_report.h"
#include "spmd/program.h"
#include "spmd/traced_program.h"
#include "tensor/tensor.h"

namespace distag::spmd {

// A tensor of a program that no op of it makes, by name.
struct PlanLeaf {
  std::string name;
  Tensor tensor;
};

// The leaves whose name fits the pattern have the spec: * within dots, ** across them, ? one character.
struct PlanRule {
  std::string pattern;
  std::string spec;
};
bool fits(std::string_view pattern, std::string_view name);

struct PlanSettings {
  Tensors roots;  // the results of a program on shapes; none: rules are all
  std::vector<PlanLeaf> leaves;
  std::vector<PlanRule> rules;       // the first that fits counts; a leaf that none fits: what follows, or repeated
  std::optional<std::string> saved;  // the report of a former plan, in the place of rules; also for no roots
  bool is_inference = false;
  uint32_t optimizer_copies = 0;
  uint64_t memory_bytes = 0;  // that a member may take for leaves and what training keeps of them; 0: any
  int64_t source = 0;         // a position; -1: each member has all values
  // The specs of leaves without a rule are searched for: those with which a step of the roots takes the least time.
  bool is_automatic = false;
  std::optional<std::string> costs;  // of the search, in the place of the usual ones
  std::function<bool()> is_over;     // asked now and then: the search then throws DEADLINE; may be empty
  StepPolicy policy;                 // of the mesh, and this member
};

// How the leaves of a program lie on a mesh. Immutable.
class Plan {
 public:
  // Throws INVALID_ARGUMENT for a rule that fits no leaf or does not suit one, for roots that are no results of ops on
  // shapes, or of none of the leaves, and for a saved text that no plan wrote, or of another mesh, program or other
  // leaves; OUT_OF_MEMORY beyond the bound; for costs that are none INVALID_ARGUMENT, and DEADLINE.
  Plan(const layout::MeshShape& mesh, PlanSettings settings);

  // In the first notation; nullptr: there is no such leaf.
  const char* spec_of(std::string_view name) const;
  // JSON. Equal arguments give equal texts.
  const std::string& report() const { return report_; }
  // Marks the leaves. Throws as marking does; INVALID_ARGUMENT for a mesh of another shape. Together: in one exchange.
  void apply(const Line& line, bool together) const;

 private:
  struct Placed {
    std::string name;
    Tensor tensor;
    layout::Spec spec;
    std::string text;
    std::string why;
    bool is_open = false;  // no rule fits it, and it is not marked
  };

  void place_by_rules(const PlanSettings& settings);
  void place_same_tensors();
  // The program of the plan that was saved.
  std::optional<uint64_t> place_as_saved(const PlanSettings& settings, std::optional<uint64_t> program,
                                         std::optional<ReportedSearch>& saved_search);
  // Of each leaf of the program, unless it is open. `places`: of those leaves, by the ids of their tensors.
  using Places = std::map<uint64_t, size_t>;
  std::vector<std::optional<layout::Spec>> fixed_specs(const TracedProgram& program, const Places& places) const;
  using Why = std::function<std::string(size_t)>;
  void place_open(const Places& places, const std::vector<layout::Spec>& specs, const Why& why);
  void note_ops(const TracedProgram& program, const std::vector<layout::Spec>& results,
                const std::vector<layout::MoveClass>& moves);
  // The leaves that are open get what follows for them.
  void complete(const TracedProgram& program);
  // Or what is found for them.
  void choose(const TracedProgram& program, const PlanSettings& settings, PlanReport& report);
  uint64_t count_memory(const PlanSettings& settings) const;
  void check_memory(const PlanSettings& settings, uint64_t memory) const;

  const layout::MeshShape mesh_;
  const int64_t source_;
  std::vector<Placed> leaves_;
  std::vector<ReportedOp> ops_;
  std::string report_;
  uint64_t hash_ = 0;  // of what the reports of all members have alike
};

}  // namespace distag::spmd
