#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace distag::spmd {

// The choice of least cost: a value for each variable, where tables say what values cost together, and values take
// memory. The search knows nothing about their meaning.
//
// Dominated values are dropped (plan_reduction.h). Then one variable after the other is eliminated
// (plan_elimination.h), which is exact. If memory binds, it gets a price, which gives a bound and a choice near it. An
// elimination with fronts then closes the gap: fronts are pairs of cost and bytes of which no other is better in both
// (plan_fronts.h). If these pass the limits, or a table does and is split, `bound` is the cost of the relaxed problem,
// and moves of one or two variables improve the answer (plan_improvement.h).
//
// All numbers are integers, and work is counted, so the answer is the same on every machine.

using Picoseconds = uint64_t;  // sums saturate
constexpr Picoseconds kImpossible = UINT64_MAX;

// The costs of a table: one for each combination of values, the last variable's value fastest. Copies share
// storage: the search uses that to recognise equal tables, and works on them once.
class Costs {
 public:
  Costs(std::vector<Picoseconds> costs = {})
      : costs_(std::make_shared<const std::vector<Picoseconds>>(std::move(costs))) {}
  Costs(std::initializer_list<Picoseconds> costs) : Costs(std::vector<Picoseconds>(costs)) {}

  size_t size() const { return costs_->size(); }
  Picoseconds operator[](size_t row) const { return (*costs_)[row]; }
  const Picoseconds* data() const { return costs_->data(); }
  auto begin() const { return costs_->begin(); }
  auto end() const { return costs_->end(); }

 private:
  std::shared_ptr<const std::vector<Picoseconds>> costs_;
};

struct CostTable {
  std::vector<uint32_t> variables;  // distinct, ascending
  Costs costs;
};

struct SearchProblem {
  std::vector<uint32_t> sizes;               // number of values of each variable, at least 1
  std::vector<CostTable> tables;             // added up
  std::vector<std::vector<uint64_t>> bytes;  // memory of each variable's values, added up; empty: no memory
  uint64_t memory_bytes = 0;                 // most that may be used; 0: no limit
};

struct SearchLimits {
  size_t most_rows = size_t{1} << 20;       // of one table in the elimination
  uint64_t most_steps = uint64_t{1} << 28;  // values read, in the whole search; also bounds its memory
  std::function<bool()> is_over;            // asked now and then; may be empty. The search then throws DEADLINE
};

// Among choices of equal cost: fewest bytes, then lower values of the variables that were eliminated last.
struct SearchResult {
  std::vector<uint32_t> values;  // one of each variable
  Picoseconds cost = 0;          // kImpossible: no possible choice was found; if `bound` is too, none exists
  Picoseconds bound = 0;         // no choice that fits costs less; equal to cost: exact
  uint64_t bytes = 0;
  bool fits = true;            // false: none was found that fits memory_bytes, and `values` need the least known
  bool least_is_exact = true;  // without fits: no choice needs less than `bytes`
  uint64_t steps = 0;          // values read
};

SearchResult search(const SearchProblem& problem, const SearchLimits& limits);

}  // namespace distag::spmd
