#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/error.h"
#include "spmd/program.h"

namespace distag::spmd {

// The outcomes of a step that each member does by itself, and that may fail on one member alone. Each member sends a
// status, a text, and numbers to all.
struct Outcomes {
  std::optional<Error> failure;               // the first member's that has one, with its rank: the same on all
  std::vector<std::vector<int64_t>> numbers;  // without a failure: of each member, by position
};

// Runs `step`, which gives at most `count` numbers, and sends its outcome to all members. Throws the error of the mesh
// if that ends: then the outcomes of the others are unknown.
Outcomes agree(CallOnLine& call, size_t count, const std::function<std::vector<int64_t>()>& step);

}  // namespace distag::spmd
