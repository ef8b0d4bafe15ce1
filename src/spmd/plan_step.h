#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layout/placement.h"
#include "layout/traffic.h"
#include "spmd/plan_costs.h"
#include "spmd/traced_program.h"

namespace distag::spmd {

// Policies of the mesh that decide what a step sends.
struct StepPolicy {
  uint64_t bucket_bytes = uint64_t{25} << 20;
  bool keeps_gathered = false;
  bool is_inference = false;
  bool refuses_hidden = false;          // moves of data between ops throw
  int64_t position = 0;                 // of the member whose bytes are counted
  std::vector<size_t> marking_order{};  // of each leaf: its place in the order of marking; empty: the order of use
};

// Collectives of a step, and the bytes of one member, counted as the statistics of a mesh count them.
struct StepCounts {
  uint64_t all_reduces = 0;
  uint64_t all_gathers = 0;
  uint64_t reduce_scatters = 0;
  uint64_t all_to_alls = 0;
  uint64_t moves = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  bool operator==(const StepCounts&) const = default;
};

// The time and the messages of a part of a step.
struct StepPart {
  Picoseconds time = 0;
  StepCounts counts;
  StepPart& operator+=(const StepPart& other);
};

// The parts of a program that go backward: the same for all specs.
struct BackwardFlow {
  std::vector<bool> steps;              // of each step
  std::vector<std::vector<bool>> uses;  // of each input of a step: whether a gradient goes to it
  std::vector<size_t> arrivals;         // of each item: the number of gradients that come to it
  std::vector<size_t> last_reader;      // of each item: the last step that reads it; kNone without one
  BackwardFlow(const TracedProgram& program, bool is_inference);
};

// The time and the messages of a program's ops, and of gradients that meet between them: op by op as in a run, from
// metadata alone.
class StepCosts {
 public:
  using Specs = std::vector<layout::Spec>;
  struct Applied {
    Specs outputs;
    Specs left;       // of each input after the op: the sum, if one was made
    Specs gradients;  // of each input, as its backward gives them
    layout::MoveClass moves = layout::MoveClass::kNone;
    StepPart part;  // forward, and backward if that runs
  };
  // Gradients of a leaf that only need a sum: they travel with others that need the same.
  struct BucketKind {
    layout::AxisSet axes = 0;
    Dtype dtype = Dtype::kFloat32;
    auto operator<=>(const BucketKind&) const = default;
  };
  struct LeafGradient {
    StepPart part;
    std::optional<BucketKind> bucket;
    uint64_t bytes = 0;  // by which buckets fill
    int64_t count = 0;   // of this member's elements
  };

  StepCosts(const layout::MeshShape& mesh, const TracedProgram& program, const PlanCosts& costs,
            const StepPolicy& policy);

  const layout::MeshShape& mesh() const { return mesh_; }
  const TracedProgram& program() const { return program_; }
  const BackwardFlow& flow() const { return flow_; }
  const StepPolicy& policy() const { return policy_; }
  const PlanCosts& costs() const { return costs_; }
  // A number that is equal for steps that cost the same with equal specs of their inputs.
  uint32_t class_of(size_t step) const { return class_of_step_[step]; }

  // A step with these specs of its inputs; those that are left out may have any. The result is kept for equal steps.
  const Applied& apply(size_t step, const Specs& inputs);
  // Brings a tensor from one spec to another. The result is kept.
  StepPart moved(const Dims& shape, Dtype dtype, const layout::Spec& from, const layout::Spec& to);
  // Gradients of a result meet, and go to the spec that its op wants; `own`: the spec of the result.
  StepPart meet(size_t item, const layout::Spec& own, const Specs& arrivals);
  LeafGradient meet_at_leaf(size_t leaf, const layout::Spec& own, const Specs& arrivals);
  // A bucket, whose elements their leaves have counted already.
  StepPart send_bucket(const BucketKind& kind, int64_t count) const;
  // The time of all arithmetic if all members shared each op: no step takes less.
  Picoseconds least_time() const;
  // The number of ops that were worked out.
  size_t placement_count() const { return placement_count_; }

 private:
  size_t item_size(size_t item) const { return dtype_size(program_.items()[item].dtype); }
  bool is_parameter(size_t item) const;
  std::string key_of_step(size_t step) const;
  uint64_t operands_of(size_t step, const Specs& inputs, std::vector<layout::Operand>& operands) const;
  Applied work_out(size_t step, const Specs& inputs);
  void bring(size_t step, const layout::OpCall& call, const layout::Placement& placement, uint64_t needed,
             bool gathers_again, Applied& applied);
  void add_merges(const layout::OpCall& call, const layout::Rule& rule, const layout::Placement& placement,
                  bool goes_backward, uint64_t needed, Applied& applied);
  void add_computing(const layout::OpCall& call, const layout::Rule& rule, const layout::Placement& placement,
                     bool goes_backward, uint64_t needed, Applied& applied) const;
  StepPart work_out_move(const Dims& shape, Dtype dtype, const layout::Spec& from, const layout::Spec& to) const;
  StepPart gathered(const Dims& shape, Dtype dtype, const Specs& arrivals, const layout::Spec& own,
                    layout::Spec& where);

  const layout::MeshShape& mesh_;
  const TracedProgram& program_;
  const PlanCosts& costs_;
  const StepPolicy policy_;
  const BackwardFlow flow_;
  std::vector<uint32_t> class_of_step_;  // equal for steps that cost the same
  std::unordered_map<std::string, Applied> kept_;
  std::unordered_map<std::string, StepPart> kept_moves_;
  size_t placement_count_ = 0;
};

// A whole step with these specs of the leaves.
struct PlannedStep {
  StepPart part;
  std::vector<layout::Spec> results;  // the first result of each step
  std::vector<layout::MoveClass> moves;
  uint64_t activation_bytes = 0;  // of results that backward needs, on the member that has most
};
PlannedStep plan_step(StepCosts& costs, const std::vector<layout::Spec>& leaves);

// Bytes of the member at position 0, which has the most.
uint64_t largest_part(const layout::MeshShape& mesh, const layout::Spec& spec, const Dims& shape, Dtype dtype);
// For each item: whether it is a result that backward keeps, for the op that reads it.
std::vector<bool> kept_results(const TracedProgram& program, const BackwardFlow& flow);

}  // namespace distag::spmd
