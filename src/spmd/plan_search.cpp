#include "spmd/plan_search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "spmd/plan_elimination.h"
#include "spmd/plan_fronts.h"
#include "spmd/plan_improvement.h"
#include "spmd/plan_reduction.h"

namespace distag::spmd {
namespace {

constexpr int kMostPrices = 64;

std::vector<std::vector<uint32_t>> scopes_of(const ReducedProblem& problem) {
  std::vector<std::vector<uint32_t>> scopes;
  const auto has_choice = [&problem](uint32_t variable) { return problem.sizes()[variable] > 1; };
  for (const CostTable& table : problem.tables()) {
    scopes.emplace_back();
    std::copy_if(table.variables.begin(), table.variables.end(), std::back_inserter(scopes.back()), has_choice);
  }
  for (uint32_t variable = 0; variable < problem.sizes().size(); ++variable) {
    if (has_choice(variable)) scopes.push_back({variable});  // the table of its bytes
  }
  return scopes;
}

class Search {
 public:
  Search(const SearchProblem& problem, const SearchLimits& limits)
      : limit_(problem.memory_bytes),
        work_(limits),
        problem_(problem, work_),
        elimination_(problem_.sizes(), scopes_of(problem_), work_) {}

  SearchResult run();

 private:
  struct Choice {
    std::vector<uint32_t> values;
    uint64_t cost;
    uint64_t bytes;  // beyond the least of each variable
    bool operator<(const Choice& other) const { return std::pair(cost, bytes) < std::pair(other.cost, other.bytes); }
  };

  Choice choice_of(std::vector<uint32_t> values) const;
  Choice improved(const Choice& choice, uint64_t budget);
  bool fits(const Choice& choice) const;
  uint64_t budget() const;
  std::vector<SharedWeights> weights(const auto& of_cost, const auto& of_bytes) const;
  std::vector<SharedWeights> costs_first(uint64_t price) const;
  std::vector<SharedWeights> bytes_first() const;
  Choice between(Choice cheap, Choice small);
  uint64_t paid_at(uint64_t price) const { return saturating_sum(price_of(budget(), price), 1); }  // rounded up
  Choice exact(Choice known);
  Choice exact_of_all(const Choice& choice);
  SearchResult result_of(const Choice& choice) const;

  const uint64_t limit_;
  SearchWork work_;
  const ReducedProblem problem_;
  Elimination elimination_;
  uint64_t bound_ = 0;
  uint64_t price_ = 0;  // of a byte, at the bound
  bool least_is_exact_ = true;
};

SearchResult Search::run() {
  Elimination::Least cheapest = elimination_.first_least(costs_first(0));
  bound_ = cheapest.sum.first;
  Choice cheap = choice_of(std::move(cheapest.values));
  if (!elimination_.is_exact()) cheap = improved(cheap, UINT64_MAX);
  if (bound_ == kImpossible || (cheap.cost != kImpossible && fits(cheap))) return result_of(cheap);
  Elimination::Least least = elimination_.least(bytes_first());
  Choice small = choice_of(std::move(least.values));
  if (!elimination_.is_exact()) small = improved(small, 0);
  least_is_exact_ = small.cost != kImpossible && least.sum.first == small.bytes;
  if (small.cost == kImpossible && elimination_.is_exact()) small = exact_of_all(small);
  if (fits(small)) small = between(std::move(cheap), std::move(small));
  if (fits(small) && elimination_.is_exact()) small = exact(std::move(small));
  return result_of(small);
}

Search::Choice Search::choice_of(std::vector<uint32_t> values) const {
  Choice choice{std::move(values), 0, 0};
  for (const CostTable& table : problem_.tables()) {
    size_t row = 0;
    for (const uint32_t variable : table.variables) row = row * problem_.sizes()[variable] + choice.values[variable];
    choice.cost = saturating_sum(choice.cost, table.costs[row]);
  }
  for (size_t variable = 0; variable < choice.values.size(); ++variable) {
    choice.bytes = saturating_sum(choice.bytes, problem_.bytes()[variable][choice.values[variable]]);
  }
  return choice;
}

Search::Choice Search::improved(const Choice& choice, uint64_t budget) {
  std::vector<uint32_t> values = choice.values;
  Improvement(problem_, work_).improve(values, budget);
  return choice_of(std::move(values));
}

bool Search::fits(const Choice& choice) const {
  return limit_ == 0 || saturating_sum(problem_.least_bytes(), choice.bytes) <= limit_;
}

uint64_t Search::budget() const {
  if (limit_ == 0) return UINT64_MAX;
  return limit_ > problem_.least_bytes() ? limit_ - problem_.least_bytes() : 0;
}

// The tables in the order of the scopes.
std::vector<SharedWeights> Search::weights(const auto& of_cost, const auto& of_bytes) const {
  const auto made = [](const auto& numbers, const auto& weight_of) {
    Weights table;
    table.reserve(numbers.size());
    for (const uint64_t number : numbers) table.push_back(weight_of(number));
    return std::make_shared<const Weights>(std::move(table));
  };
  std::vector<SharedWeights> tables;
  std::map<const Picoseconds*, SharedWeights> known;
  for (const CostTable& table : problem_.tables()) {
    SharedWeights& shared = known[table.costs.data()];
    if (shared == nullptr) shared = made(table.costs, of_cost);
    tables.push_back(shared);
  }
  std::map<std::vector<uint64_t>, SharedWeights> known_bytes;
  for (const std::vector<uint64_t>& bytes : problem_.bytes()) {
    if (bytes.size() == 1) continue;
    SharedWeights& shared = known_bytes[bytes];
    if (shared == nullptr) shared = made(bytes, of_bytes);
    tables.push_back(shared);
  }
  return tables;
}

// (cost and the price of the bytes, bytes).
std::vector<SharedWeights> Search::costs_first(uint64_t price) const {
  return weights(
      [](uint64_t cost) {
        return Weight{cost, 0};
      },
      [price](uint64_t bytes) {
        return Weight{price_of(bytes, price), bytes};
      });
}

std::vector<SharedWeights> Search::bytes_first() const {
  return weights(
      [](uint64_t cost) {
        return Weight{cost == kImpossible ? UINT64_MAX : 0, cost};
      },
      [](uint64_t bytes) {
        return Weight{bytes, 0};
      });
}

// Lagrange's relaxation: memory has a price instead of a limit. The cost of the best choice at that price, less the
// price of the budget, is a bound. The price is the slope between the best choice that does not fit and the best one
// that does, until no choice lies below the line through both (Handler, Zang: A dual algorithm for the constrained
// shortest path problem, 1980).
Search::Choice Search::between(Choice cheap, Choice small) {
  Choice best = small;
  for (int i = 0; i < kMostPrices && work_.left() >= elimination_.run_steps(); ++i) {
    if (cheap.cost >= small.cost || cheap.bytes <= small.bytes) break;
    const uint64_t price = price_at(small.cost - cheap.cost, cheap.bytes - small.bytes);
    Elimination::Least least = elimination_.least(costs_first(price));
    const uint64_t paid = paid_at(price);
    if (least.sum.first > paid && least.sum.first - paid > bound_) {
      bound_ = least.sum.first - paid;
      price_ = price;
    }
    Choice next = choice_of(std::move(least.values));
    const bool is_known = !(next < cheap || cheap < next) || !(next < small || small < next);
    if (is_known) break;
    if (fits(next)) {
      best = std::min(best, next);
      small = std::move(next);
    } else {
      cheap = std::move(next);
    }
  }
  const Choice repaired = improved(cheap, budget());
  best = improved(best, budget());
  return fits(repaired) ? std::min(best, repaired) : best;
}

// The best choice, or the known one, which fits, if the limits allow no more. First assumes a cost little above the
// bound, as this drops most weights. If no choice has it, the bound is better for the next try.
Search::Choice Search::exact(Choice known) {
  if (work_.left() < elimination_.steps()) return known;
  const std::vector<SharedWeights> tables = costs_first(0);
  const std::vector<std::vector<uint64_t>> completions = elimination_.completions(costs_first(price_));
  for (const uint64_t part : {4096u, 512u, 64u, 8u, 1u}) {
    const Picoseconds most = bound_ + (known.cost - bound_) / part;
    const FrontElimination::Cut cut{price_, saturating_sum(most, paid_at(price_)), completions};
    FrontElimination fronts(elimination_, budget(), cut, work_);
    if (const auto values = fronts.values(tables, budget())) known = std::min(known, choice_of(*values));
    if (fronts.has_passed_limits()) return known;
    bound_ = std::min(known.cost, saturating_sum(most, 1));
    if (known.cost <= most) return known;
  }
  return known;
}

// For problems whose costs may saturate, so that no weight can be dropped for its cost or bytes. Gives `choice` if the
// limits do not allow a result.
Search::Choice Search::exact_of_all(const Choice& choice) {
  FrontElimination fronts(elimination_, UINT64_MAX, {}, work_);
  const auto values = fronts.values(costs_first(0), budget());
  if (!values) return choice;
  least_is_exact_ = true;
  return choice_of(*values);
}

SearchResult Search::result_of(const Choice& choice) const {
  const uint64_t bytes = saturating_sum(problem_.least_bytes(), choice.bytes);
  return {problem_.originals(choice.values), choice.cost, bound_, bytes, fits(choice), least_is_exact_, work_.steps()};
}

}  // namespace

SearchResult search(const SearchProblem& problem, const SearchLimits& limits) { return Search(problem, limits).run(); }

}  // namespace distag::spmd
