#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/error.h"
#include "spmd/program.h"

namespace distag::spmd {

// What members tell each other of a step that each does by itself and that may fail on one alone: a status, a text, and
// numbers.
struct Outcomes {
  std::optional<Error> failure;               // of the first member that has one, with its rank: the same on all
  std::vector<std::vector<int64_t>> numbers;  // without a failure: of each member, by position
};

// Runs `step`, which gives at most `count` numbers, and tells all members of its outcome. Throws as the mesh does where
// that ends: then nothing is known of the others.
Outcomes agree(CallOnLine& call, size_t count, const std::function<std::vector<int64_t>()>& step);

}  // namespace distag::spmd
