#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "spmd/plan_reduction.h"

namespace distag::spmd {

// Moves of one variable, and of two that a table has, as long as a move makes the choice better: fewer impossible
// costs, then fewer bytes beyond the budget, then less cost, then fewer bytes. Ends early when steps run out.
class Improvement {
 public:
  Improvement(const ReducedProblem& problem, SearchWork& work);

  // The budget counts bytes beyond the least of each variable.
  void improve(std::vector<uint32_t>& values, uint64_t budget);

 private:
  using Wide = unsigned __int128;  // a sum that saturates could make two moves better than each other
  struct Score {
    Wide impossible;  // tables
    Wide beyond;      // bytes
    Wide cost;
    Wide bytes;
    auto operator<=>(const Score&) const = default;
  };

  bool move(const std::vector<uint32_t>& variables);
  Score score(const std::vector<size_t>& tables, Wide bytes);
  Wide bytes_of(const std::vector<uint32_t>& variables) const;
  bool next(const std::vector<uint32_t>& variables);

  const ReducedProblem& problem_;
  SearchWork& work_;
  std::set<std::pair<uint32_t, uint32_t>> edges_;
  std::vector<uint32_t> values_;
  Wide bytes_ = 0;
  uint64_t budget_ = 0;
};

}  // namespace distag::spmd
