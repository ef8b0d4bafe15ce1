#pragma once

#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

#include "spmd/plan_reduction.h"

namespace distag::spmd {

// Moves of one variable, and of two that a table has, as long as a move makes the choice better: fewer impossible
// costs, then fewer bytes beyond the budget, then less cost, then fewer bytes. A useless move is tried again only
// after a change in one of its tables. Ends early when steps run out.
class Improvement {
 public:
  Improvement(const ReducedProblem& problem, SearchWork& work);

  // The budget counts bytes beyond the least of each variable.
  void improve(std::vector<uint32_t>& values, uint64_t budget);

 private:
  using Wide = unsigned __int128;  // a sum that saturates could make two moves better than each other
  struct Score {
    Wide impossible = 0;  // tables
    Wide beyond = 0;      // bytes
    Wide cost = 0;
    Wide bytes = 0;
    auto operator<=>(const Score&) const = default;
  };
  static constexpr uint32_t kNoVariable = UINT32_MAX;
  // A variable alone, with kNoVariable as the second one, or two.
  struct Move {
    uint32_t first;
    uint32_t second;
    uint64_t tried;  // the number of changes before it was tried last
  };
  // Costs of a table at the values that a move gives its variables; all others have theirs.
  struct Line {
    const Picoseconds* costs;
    size_t first_stride;
    size_t second_stride;
  };

  bool try_move(Move& move);
  Line line_of(size_t table, uint32_t first, uint32_t second) const;
  std::vector<Score> scores_of(uint32_t variable, const std::vector<size_t>& tables);
  void change(uint32_t variable, uint32_t value);
  uint32_t size_of(uint32_t variable) const { return variable == kNoVariable ? 1 : problem_.sizes()[variable]; }

  const ReducedProblem& problem_;
  SearchWork& work_;
  std::vector<Move> singles_;
  std::vector<Move> pairs_;
  std::vector<uint32_t> values_;
  std::vector<uint64_t> changed_;  // of each variable: the number of the last change in one of its tables
  uint64_t changes_ = 0;
  Wide bytes_ = 0;
  uint64_t budget_ = 0;
};

}  // namespace distag::spmd
