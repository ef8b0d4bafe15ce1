#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spmd/plan_step.h"

namespace distag::spmd {

// The question to a search of specs.
struct ChoiceRequest {
  std::vector<std::optional<layout::Spec>> fixed;  // of each leaf of the program; leaves without a spec are chosen
  std::vector<uint64_t> copies;                    // of each leaf: the number of times that its bytes count as memory
  uint64_t memory_bytes = 0;                       // of a member; 0: no limit
  uint64_t other_bytes = 0;                        // of the limit, the part that tensors outside the program take
  std::function<bool()> is_over;                   // asked now and then: if true, the search throws DEADLINE
};

// Specs with which a step takes the least time.
struct SpecChoice {
  std::vector<layout::Spec> leaves;
  PlannedStep step;
  Picoseconds bound = 0;         // no choice takes less
  std::vector<std::string> why;  // of each leaf that was not fixed
};

// Places two axes at a time where there are more, unless the tables of all at once are small. Throws DEADLINE, and
// OUT_OF_MEMORY with the least bytes that would suffice.
SpecChoice choose_specs(StepCosts& costs, const ChoiceRequest& request);

}  // namespace distag::spmd
