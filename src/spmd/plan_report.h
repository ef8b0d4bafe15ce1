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

// What the report of a plan says of a leaf.
struct ReportedLeaf {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  Dims shape;
  std::string spec;
  std::string why;
};

// And of an op of its program.
struct ReportedOp {
  std::string name;
  std::string spec;  // of its result, or the first of them
  std::string why;
};

// And of a step, where the specs were searched for.
struct ReportedSearch {
  double seconds = 0;
  double bound = 0;
  std::string costs;         // JSON
  uint64_t activations = 0;  // bytes of results that a backward keeps
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

// A text that may be anything: throws INVALID_ARGUMENT unless it is the report of a plan for this mesh; with a program,
// of a plan for that program. Without one it may be of any, or of rules alone.
PlanReport read_plan_report(const layout::MeshShape& mesh, std::optional<uint64_t> program, const std::string& text);

}  // namespace distag::spmd
