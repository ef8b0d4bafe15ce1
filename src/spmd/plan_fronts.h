#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "spmd/plan_elimination.h"

namespace distag::spmd {

// The best choice within a budget of `second`, by elimination of tables that have a front in each row: the weights of
// which no other is at most as large in both parts, the least `first` in front.
class FrontElimination {
 public:
  using Front = std::vector<Weight>;
  // Drops weights from which no choice within the budget is as cheap as a known choice. The bound is `first`, the price
  // of `second`, and the completion at that price.
  struct Cut {
    uint64_t price = 0;
    uint64_t most = UINT64_MAX;                          // limit: the known choice's cost and the price of the budget
    std::span<const std::vector<uint64_t>> completions;  // of Elimination; empty: drops nothing
  };

  // `elimination` is exact, and outlives this object. Drops weights beyond `budget`.
  FrontElimination(const Elimination& elimination, uint64_t budget, const Cut& cut, SearchWork& work);

  // The values of the least `first` with `second` at most `wanted`, or else of the least `second`. Empty if the fronts
  // pass the limits, or if no weight is left.
  std::optional<std::vector<uint32_t>> values(const std::vector<SharedWeights>& tables, uint64_t wanted);
  bool has_passed_limits() const { return weights_left_ == 0; }

 private:
  struct Table {
    std::span<const Weight> at(size_t row) const;

    std::vector<Weight> weights;
    std::vector<size_t> ends;  // of each row's front; empty: one weight in each
  };
  using Fronts = std::vector<std::span<const Weight>>;

  Fronts fronts_of_rest() const;
  bool add_table(size_t group_number);
  Front front_of(const Fronts& fronts);
  Front sum(const Front& a, std::span<const Weight> b);
  void prune(Front& sorted) const;
  void drop_dear(Front& front, size_t group_number, size_t row) const;
  void choose(const Elimination::Group& group, Weight target, std::vector<uint32_t>& values);
  std::vector<Weight> parts_of(Weight target, const Fronts& fronts);
  void set_targets(const std::vector<Weight>& parts, const std::vector<size_t>& tables);

  const Elimination& elimination_;
  const uint64_t budget_;
  const Cut cut_;
  SearchWork& work_;
  std::vector<Table> tables_;
  std::vector<Weight> targets_;  // the share of each table in the sum of the table that replaces it
  uint64_t weights_left_;        // weights that may still be made
};

}  // namespace distag::spmd
