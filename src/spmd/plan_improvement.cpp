#include "spmd/plan_improvement.h"

#include <algorithm>

namespace distag::spmd {

Improvement::Improvement(const ReducedProblem& problem, SearchWork& work) : problem_(problem), work_(work) {
  for (const CostTable& table : problem.tables()) {
    for (size_t i = 0; i < table.variables.size(); ++i) {
      for (size_t k = 0; k < i; ++k) edges_.emplace(table.variables[k], table.variables[i]);
    }
  }
}

void Improvement::improve(std::vector<uint32_t>& values, uint64_t budget) {
  values_ = values;
  bytes_ = 0;
  for (uint32_t variable = 0; variable < values_.size(); ++variable) bytes_ += bytes_of({variable});
  budget_ = budget;
  for (bool has_changed = true; has_changed && work_.left() > 0;) {
    has_changed = false;
    for (uint32_t variable = 0; variable < values_.size(); ++variable) has_changed = move({variable}) || has_changed;
    if (has_changed) continue;
    for (const auto& [a, b] : edges_) has_changed = move({a, b}) || has_changed;
  }
  values = values_;
}

// Moves to the best combination of values of these variables, the first of equals. True if the values change.
bool Improvement::move(const std::vector<uint32_t>& variables) {
  if (work_.left() == 0) return false;
  std::vector<size_t> tables;
  for (const uint32_t variable : variables) {
    tables.insert(tables.end(), problem_.tables_of(variable).begin(), problem_.tables_of(variable).end());
  }
  std::sort(tables.begin(), tables.end());
  tables.erase(std::unique(tables.begin(), tables.end()), tables.end());
  std::vector<uint32_t> best;
  for (const uint32_t variable : variables) best.push_back(values_[variable]);
  const Wide other_bytes = bytes_ - bytes_of(variables);
  Score least = score(tables, bytes_);
  bool has_changed = false;
  for (const uint32_t variable : variables) values_[variable] = 0;
  do {
    const Score each = score(tables, other_bytes + bytes_of(variables));
    if (each >= least) continue;
    least = each;
    has_changed = true;
    for (size_t i = 0; i < best.size(); ++i) best[i] = values_[variables[i]];
  } while (next(variables));
  for (size_t i = 0; i < best.size(); ++i) values_[variables[i]] = best[i];
  bytes_ = least.bytes;
  return has_changed;
}

Improvement::Score Improvement::score(const std::vector<size_t>& tables, Wide bytes) {
  Score score{0, bytes > budget_ ? bytes - budget_ : 0, 0, bytes};
  for (const size_t each : tables) {
    const CostTable& table = problem_.tables()[each];
    size_t row = 0;
    for (const uint32_t variable : table.variables) row = row * problem_.sizes()[variable] + values_[variable];
    if (table.costs[row] == kImpossible) {
      ++score.impossible;
    } else {
      score.cost += table.costs[row];
    }
  }
  work_.add(tables.size());
  return score;
}

Improvement::Wide Improvement::bytes_of(const std::vector<uint32_t>& variables) const {
  Wide bytes = 0;
  for (const uint32_t variable : variables) {
    bytes += problem_.bytes()[variable][values_[variable]];
  }
  return bytes;
}

// Moves to the next combination of the variables' values; false: that was the last.
bool Improvement::next(const std::vector<uint32_t>& variables) {
  for (size_t i = variables.size(); i-- > 0;) {
    if (++values_[variables[i]] < problem_.sizes()[variables[i]]) return true;
    values_[variables[i]] = 0;
  }
  return false;
}

}  // namespace distag::spmd
