#include "spmd/plan_improvement.h"

#include <algorithm>
#include <iterator>
#include <set>

namespace distag::spmd {
namespace {

void add_cost(auto& score, Picoseconds cost) {
  if (cost == kImpossible) {
    ++score.impossible;
  } else {
    score.cost += cost;
  }
}

}  // namespace

Improvement::Improvement(const ReducedProblem& problem, SearchWork& work) : problem_(problem), work_(work) {
  std::set<std::pair<uint32_t, uint32_t>> edges;
  for (const CostTable& table : problem.tables()) {
    for (size_t i = 0; i < table.variables.size(); ++i) {
      for (size_t k = 0; k < i; ++k) edges.emplace(table.variables[k], table.variables[i]);
    }
  }
  const auto has_choice = [&problem](uint32_t variable) { return problem.sizes()[variable] > 1; };
  for (uint32_t variable = 0; variable < problem.sizes().size(); ++variable) {
    if (has_choice(variable)) singles_.push_back({variable, kNoVariable, 0});
  }
  for (const auto& [a, b] : edges) {
    if (has_choice(a) && has_choice(b)) pairs_.push_back({a, b, 0});
  }
}

void Improvement::improve(std::vector<uint32_t>& values, uint64_t budget) {
  values_ = values;
  bytes_ = 0;
  for (uint32_t variable = 0; variable < values_.size(); ++variable) {
    bytes_ += problem_.bytes()[variable][values_[variable]];
  }
  budget_ = budget;
  changes_ = 1;
  changed_.assign(values_.size(), changes_);
  for (std::vector<Move>* moves : {&singles_, &pairs_}) {
    for (Move& move : *moves) move.tried = 0;
  }
  for (bool has_changed = true; has_changed && work_.left() > 0;) {
    has_changed = false;
    for (Move& move : singles_) has_changed = try_move(move) || has_changed;
    if (has_changed) continue;
    for (Move& move : pairs_) has_changed = try_move(move) || has_changed;
  }
  values = values_;
}

// Moves to the best combination of values, the first of equals. True if the values change.
bool Improvement::try_move(Move& move) {
  const auto [first, second, tried] = move;
  const bool is_alone = second == kNoVariable;
  if (work_.left() == 0 || (changed_[first] <= tried && (is_alone || changed_[second] <= tried))) return false;
  move.tried = changes_;
  std::vector<size_t> shared, first_only = problem_.tables_of(first), second_only;
  if (!is_alone) {
    const std::vector<size_t>& tables = problem_.tables_of(second);
    std::set_intersection(first_only.begin(), first_only.end(), tables.begin(), tables.end(),
                          std::back_inserter(shared));
    std::set_difference(tables.begin(), tables.end(), shared.begin(), shared.end(), std::back_inserter(second_only));
    std::erase_if(first_only,
                  [&shared](size_t table) { return std::binary_search(shared.begin(), shared.end(), table); });
  }
  const std::vector<Score> of_first = scores_of(first, first_only), of_second = scores_of(second, second_only);
  std::vector<Line> lines;
  for (const size_t table : shared) lines.push_back(line_of(table, first, second));
  const uint32_t first_before = values_[first], second_before = is_alone ? 0 : values_[second];
  const Wide others = bytes_ - of_first[first_before].bytes - of_second[second_before].bytes;
  const auto score_of = [&](uint32_t a, uint32_t b, const Score& limit) {
    Score score{of_first[a].impossible + of_second[b].impossible, 0, of_first[a].cost + of_second[b].cost,
                others + of_first[a].bytes + of_second[b].bytes};
    score.beyond = score.bytes > budget_ ? score.bytes - budget_ : 0;
    for (size_t i = 0; i < lines.size() && score.impossible <= limit.impossible; ++i) {
      add_cost(score, lines[i].costs[a * lines[i].first_stride + b * lines[i].second_stride]);
    }
    return score;
  };
  uint32_t best_first = first_before, best_second = second_before;
  Score least = score_of(first_before, second_before, {~Wide{0}});
  for (uint32_t a = 0; a < size_of(first); ++a) {
    for (uint32_t b = 0; b < size_of(second); ++b) {
      const Score each = score_of(a, b, least);
      if (each >= least) continue;
      least = each;
      best_first = a;
      best_second = b;
    }
  }
  work_.add(uint64_t{size_of(first)} * size_of(second) * (1 + lines.size()));
  if (best_first == first_before && best_second == second_before) return false;
  change(first, best_first);
  if (!is_alone) change(second, best_second);
  return true;
}

Improvement::Line Improvement::line_of(size_t table, uint32_t first, uint32_t second) const {
  const CostTable& of = problem_.tables()[table];
  Line line{of.costs.data(), 0, 0};
  size_t stride = 1;
  for (size_t i = of.variables.size(); i-- > 0;) {
    const uint32_t variable = of.variables[i];
    if (variable == first) {
      line.first_stride = stride;
    } else if (variable == second) {
      line.second_stride = stride;
    } else {
      line.costs += stride * values_[variable];
    }
    stride *= problem_.sizes()[variable];
  }
  return line;
}

// The share of a variable's tables and bytes in a score, for each of its values.
std::vector<Improvement::Score> Improvement::scores_of(uint32_t variable, const std::vector<size_t>& tables) {
  std::vector<Score> scores(size_of(variable));
  if (variable == kNoVariable) return scores;
  for (uint32_t value = 0; value < scores.size(); ++value) scores[value].bytes = problem_.bytes()[variable][value];
  for (const size_t table : tables) {
    const Line line = line_of(table, variable, kNoVariable);
    for (size_t value = 0; value < scores.size(); ++value) {
      add_cost(scores[value], line.costs[value * line.first_stride]);
    }
  }
  work_.add(scores.size() * (1 + tables.size()));
  return scores;
}

void Improvement::change(uint32_t variable, uint32_t value) {
  if (values_[variable] == value) return;
  const std::vector<uint64_t>& bytes = problem_.bytes()[variable];
  bytes_ = bytes_ - bytes[values_[variable]] + bytes[value];
  // With a budget, bytes elsewhere may make any move useful.
  const bool concerns_all = budget_ != UINT64_MAX && bytes[values_[variable]] != bytes[value];
  values_[variable] = value;
  ++changes_;
  if (concerns_all) std::fill(changed_.begin(), changed_.end(), changes_);
  changed_[variable] = changes_;
  for (const size_t table : problem_.tables_of(variable)) {
    for (const uint32_t other : problem_.tables()[table].variables) changed_[other] = changes_;
  }
}

}  // namespace distag::spmd
