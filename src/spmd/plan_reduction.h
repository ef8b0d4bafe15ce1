#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "spmd/plan_elimination.h"

namespace distag::spmd {

// A problem without dominated values: another value takes no more bytes, and costs no more in any table, whatever the
// other variables' values are. Of two equal values the lower number stays. Large tables are not compared.
class ReducedProblem {
 public:
  ReducedProblem(const SearchProblem& problem, SearchWork& work);

  // The sizes of the remaining values. Variables keep their numbers.
  const std::vector<uint32_t>& sizes() const { return sizes_; }
  const std::vector<CostTable>& tables() const { return tables_; }
  const std::vector<std::vector<uint64_t>>& bytes() const { return bytes_; }  // of each variable, beyond its least
  uint64_t least_bytes() const { return least_bytes_; }                       // sum of the least of each variable
  // Tables that have the variable.
  const std::vector<size_t>& tables_of(uint32_t variable) const { return tables_of_[variable]; }
  // The numbers that these values have in the original problem.
  std::vector<uint32_t> originals(const std::vector<uint32_t>& values) const;

 private:
  struct Witness {
    size_t table;
    size_t stride;
    size_t row;
  };

  bool drop_values(uint32_t variable);
  void find_witnesses(uint32_t variable);
  bool beats(uint32_t variable, uint32_t value, uint32_t other);
  bool is_no_dearer(const CostTable& table, uint32_t variable, uint32_t value, uint32_t other);
  size_t stride_of(const CostTable& table, uint32_t variable) const;
  void shrink(CostTable& table, uint32_t variable, const std::vector<uint32_t>& kept);
  void take_least_bytes();

  SearchWork& work_;
  std::vector<uint32_t> sizes_;
  std::vector<CostTable> tables_;
  std::vector<std::vector<uint64_t>> bytes_;
  uint64_t least_bytes_ = 0;
  std::vector<std::vector<size_t>> tables_of_;
  std::vector<std::vector<uint32_t>> kept_;
  std::vector<std::vector<Witness>> witnesses_;  // of each value of the variable that is looked at
  // Costs before and after, by their place, the stride and the number of values, and those that stay.
  std::map<std::vector<uint64_t>, std::pair<Costs, Costs>> shrunk_;
};

}  // namespace distag::spmd
