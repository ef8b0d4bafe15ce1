#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "spmd/plan_search.h"

namespace distag::spmd {

inline uint64_t saturating_sum(uint64_t a, uint64_t b) { return a + b < a ? UINT64_MAX : a + b; }
uint64_t saturating_product(uint64_t a, uint64_t b);
// The price of `bytes`, rounded down. The price of a byte has 32 binary places.
uint64_t price_of(uint64_t bytes, uint64_t price);
// The price of a byte at which `bytes` cost `cost`, or a little less.
uint64_t price_at(uint64_t cost, uint64_t bytes);

// The sum to be least in `first`; `second` decides among equals. (cost, bytes) or the reverse. UINT64_MAX: impossible.
struct Weight {
  uint64_t first = 0;
  uint64_t second = 0;
  auto operator<=>(const Weight&) const = default;
};

inline Weight operator+(const Weight& a, const Weight& b) {
  return {saturating_sum(a.first, b.first), saturating_sum(a.second, b.second)};
}

// A weight for each combination of values, the last variable's value fastest.
using Weights = std::vector<Weight>;
// Tables that are one object are alike, and are worked on once.
using SharedWeights = std::shared_ptr<const Weights>;

// Counts the steps of a search.
class SearchWork {
 public:
  explicit SearchWork(const SearchLimits& limits) : limits_(limits) {}

  // Throws DEADLINE if the time is up, which it checks once in many steps.
  void add(uint64_t steps);
  uint64_t steps() const { return steps_; }
  uint64_t left() const { return steps_ < limits_.most_steps ? limits_.most_steps - steps_ : 0; }
  const SearchLimits& limits() const { return limits_; }

 private:
  const SearchLimits& limits_;
  uint64_t steps_ = 0;
  uint64_t asked_ = 0;  // steps when it last asked
};

// Least sums over tables by elimination of variables (Bertele, Brioschi: Nonserial dynamic programming, 1972): the
// tables of a variable are replaced by one table that has, for each combination of the other variables, the least sum
// over its values. The variable whose new table is least comes first. A table that would pass the limits is split
// (Dechter, Rish: Mini-buckets, 2003): each part takes a value of its own, so their sum is a lower bound.
class Elimination {
 public:
  struct Input {
    size_t table;
    size_t stride;                // of the variable
    std::vector<size_t> strides;  // of the group's scope
  };
  // Tables with one variable, and the table that replaces them: number `table_count() + number of the group`.
  struct Group {
    uint32_t variable;
    std::vector<uint32_t> scope;  // ascending, without the variable
    std::vector<Input> inputs;
    size_t rows;
  };
  // The combinations of a group's scope, one after the other, as offsets in its inputs at the variable's value 0.
  class Walk {
   public:
    Walk(const Group& group, const std::vector<uint32_t>& sizes);
    bool next();  // false: it was the last one
    size_t offset(size_t input) const { return offsets_[input]; }

   private:
    const Group& group_;
    const std::vector<uint32_t>& sizes_;
    std::vector<uint32_t> digits_;
    std::vector<size_t> offsets_;
  };
  struct Least {
    Weight sum;  // exact, or a lower bound of `first`
    std::vector<uint32_t> values;
  };

  // `scopes`: variables of each table, ascending.
  Elimination(std::vector<uint32_t> sizes, std::vector<std::vector<uint32_t>> scopes, SearchWork& work);

  bool is_exact() const { return is_exact_; }
  uint64_t steps() const { return steps_; }  // of least(), if all values were possible and no tables alike
  // Like least(), to be called before it. Arranges the elimination anew, for all values, if too many are possible.
  Least first_least(const std::vector<SharedWeights>& tables);
  uint64_t run_steps() const { return run_steps_; }  // that first_least() took in the end
  // The least sum over the given tables, in the order of the scopes.
  Least least(std::vector<SharedWeights> tables) const;
  // For each row of each group's table: the least sum of `first` over the tables outside it. Exact elimination only.
  std::vector<std::vector<uint64_t>> completions(std::vector<SharedWeights> tables) const;

  const std::vector<uint32_t>& sizes() const { return sizes_; }
  size_t table_count() const { return table_count_; }
  const std::vector<Group>& groups() const { return groups_; }
  // Tables without variables that remain.
  const std::vector<size_t>& rest() const { return rest_; }
  // The offset of an input for the values of the group's scope, at the variable's value 0.
  static size_t offset_of(const Group& group, const Input& input, const std::vector<uint32_t>& values);

 private:
  using Tables = std::vector<size_t>;
  class Possible;

  // Most steps of a run, and most rows of all tables that it makes.
  struct RunLimits {
    uint64_t steps = UINT64_MAX;
    uint64_t rows = UINT64_MAX;
  };

  void arrange_for(uint64_t possible_share);
  void arrange(uint64_t most_rows);
  void eliminate(uint32_t variable, const std::vector<Tables>& parts, std::vector<Tables>& readers);
  std::vector<uint32_t> joined(const Tables& tables, uint32_t without);
  uint64_t rows_of(const std::vector<uint32_t>& scope) const;
  std::vector<Tables> split(const Tables& tables, uint32_t variable, uint64_t most_rows);
  static size_t share_of(const Weights& table);
  Input input_of(size_t table, const Group& group) const;
  bool eliminate(std::vector<SharedWeights>& tables, const RunLimits& limits) const;
  Weights least_of(const Group& group, const std::vector<SharedWeights>& tables, uint64_t last_step) const;
  Least least_in(const std::vector<SharedWeights>& tables) const;
  std::vector<uint32_t> values_of(const std::vector<SharedWeights>& tables) const;

  const std::vector<uint32_t> sizes_;
  const size_t table_count_;
  SearchWork& work_;
  std::vector<std::vector<uint32_t>> scopes_;
  std::vector<Group> groups_;  // groups of one variable follow one another
  std::vector<size_t> rest_;
  std::vector<uint64_t> marks_;  // of each variable: the last union that contains it
  uint64_t unions_ = 0;
  uint64_t steps_ = 0;
  uint64_t run_steps_ = 0;
  bool is_exact_ = true;
};

}  // namespace distag::spmd
