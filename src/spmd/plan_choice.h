#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spmd/plan_step.h"

namespace distag::spmd {

// What a search of specs is asked.
struct ChoiceRequest {
  std::vector<std::optional<layout::Spec>> fixed;  // of each leaf of the program; those without one are chosen
  std::vector<uint64_t> copies;                    // of each leaf: how many times its bytes count as memory
  uint64_t memory_bytes = 0;                       // of a member; 0: no limit
  uint64_t other_bytes = 0;                        // of the limit, what the program does not use
  std::function<bool()> is_over;                   // asked now and then: the search then throws DEADLINE
};

// The specs with which a step takes the least time.
struct SpecChoice {
  std::vector<layout::Spec> leaves;
  PlannedStep step;
  Picoseconds bound = 0;         // no choice takes less
  std::vector<std::string> why;  // of each leaf that was not fixed
};

// Throws DEADLINE, and OUT_OF_MEMORY with the least bytes that would do.
SpecChoice choose_specs(StepCosts& costs, const ChoiceRequest& request);

}  // namespace distag::spmd
