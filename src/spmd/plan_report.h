#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/mesh_shape.h"
#include "spmd/plan_step.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"

namespace distag::spmd {

// A leaf in the report of a plan.
struct ReportedLeaf {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  Dims shape;
  std::string spec;
  std::string why;
};

// An op of the program in the report.
struct ReportedOp {
  std::string name;
  std::string spec;  // of the first result
  std::string why;
};

// The costs of a step in the report, if the specs were searched for.
struct ReportedSearch {
  double seconds = 0;
  double bound = 0;
  std::string costs;         // JSON
  uint64_t activations = 0;  // bytes of results that backward keeps
  StepCounts counts;
};

struct PlanReport {
  std::optional<uint64_t> program;  // its hash; none: the plan is by rules alone
  std::optional<ReportedSearch> search;
  uint64_t memory = 0;
  std::vector<ReportedLeaf> leaves;
  std::vector<ReportedOp> ops;
};
std::string write_plan_report(const layout::MeshShape& mesh, const PlanReport& report);

// Reads any text: throws INVALID_ARGUMENT unless it is the report of a plan for this mesh and, if `program` is given,
// for that program. Without one it may be of any program, or of rules alone.
PlanReport read_plan_report(const layout::MeshShape& mesh, std::optional<uint64_t> program, const std::string& text);

}  // namespace distag::spmd
