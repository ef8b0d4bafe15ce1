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

// A named leaf: a tensor of a program that no op of it makes.
struct PlanLeaf {
  std::string name;
  Tensor tensor;
};

// Leaves whose name fits the pattern get the spec: * matches within dots, ** across them, ? one character.
struct PlanRule {
  std::string pattern;
  std::string spec;
};
bool fits(std::string_view pattern, std::string_view name);

struct PlanSettings {
  Tensors roots;  // the results of a program on shapes; none: a plan by rules alone
  std::vector<PlanLeaf> leaves;
  std::vector<PlanRule> rules;       // the first that fits counts; other leaves get what follows, or are repeated
  std::optional<std::string> saved;  // the report of a former plan, instead of rules; also without roots
  bool is_inference = false;
  uint32_t optimizer_copies = 0;
  uint64_t memory_bytes = 0;  // limit of a member for leaves and what training keeps of them; 0: none
  int64_t source = 0;         // a position; -1: each member has all values
  // Searches specs for the leaves without a rule: those with which a step of the roots takes the least time.
  bool is_automatic = false;
  std::optional<std::string> costs;  // of the search, instead of the defaults
  std::function<bool()> is_over;     // asked now and then: if true, the search throws DEADLINE; may be empty
  StepPolicy policy;                 // of the mesh, and of this member
};

// The specs of a program's leaves on a mesh. Immutable.
class Plan {
 public:
  // Throws INVALID_ARGUMENT for a rule that fits no leaf, or whose spec does not suit a leaf; for roots that are no
  // results of ops on shapes, or use none of the leaves; for a saved text that is no report of a plan, or of another
  // mesh, program or leaves; and for malformed costs. Throws OUT_OF_MEMORY beyond the limit, and DEADLINE.
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
  // Takes the specs of a saved plan. Gives the hash of its program.
  std::optional<uint64_t> place_as_saved(const PlanSettings& settings, std::optional<uint64_t> program,
                                         std::optional<ReportedSearch>& saved_search);
  // The spec of each leaf of the program, empty if it is open. `places`: of the program's leaves, by tensor id.
  using Places = std::map<uint64_t, size_t>;
  std::vector<std::optional<layout::Spec>> fixed_specs(const TracedProgram& program, const Places& places) const;
  using Why = std::function<std::string(size_t)>;
  void place_open(const Places& places, const std::vector<layout::Spec>& specs, const Why& why);
  void note_ops(const TracedProgram& program, const std::vector<layout::Spec>& results,
                const std::vector<layout::MoveClass>& moves);
  // Open leaves get the specs that follow from the others.
  void complete(const TracedProgram& program);
  // Open leaves get the specs that the search finds.
  void choose(const TracedProgram& program, const PlanSettings& settings, PlanReport& report);
  uint64_t count_memory(const PlanSettings& settings) const;
  void check_memory(const PlanSettings& settings, uint64_t memory) const;

  const layout::MeshShape mesh_;
  const int64_t source_;
  std::vector<Placed> leaves_;
  std::vector<ReportedOp> ops_;
  std::string report_;
  uint64_t hash_ = 0;  // of the parts of the report that all members have alike
};

}  // namespace distag::spmd
