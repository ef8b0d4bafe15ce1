#include "spmd/plan_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "base/error.h"

namespace distag::spmd {
namespace {

Picoseconds sum(Picoseconds a, Picoseconds b) { return a + b < a ? kImpossible : a + b; }

Picoseconds cost_of(const SearchProblem& problem, const std::vector<uint32_t>& values) {
  Picoseconds cost = 0;
  for (const CostTable& table : problem.tables) {
    size_t row = 0;
    for (const uint32_t variable : table.variables) row = row * problem.sizes[variable] + values[variable];
    cost = sum(cost, table.costs[row]);
  }
  return cost;
}

uint64_t bytes_of(const SearchProblem& problem, const std::vector<uint32_t>& values) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < problem.bytes.size(); ++i) {
    if (!problem.bytes[i].empty()) bytes = sum(bytes, problem.bytes[i][values[i]]);
  }
  return bytes;
}

bool next(const std::vector<uint32_t>& sizes, std::vector<uint32_t>& values) {
  for (size_t i = values.size(); i-- > 0;) {
    if (++values[i] < sizes[i]) return true;
    values[i] = 0;
  }
  return false;
}

struct Known {
  Picoseconds cost = kImpossible;
  uint64_t bytes = 0;
  bool fits = true;
};

// By trying all choices. Without one that fits: the least bytes, and the least cost of these.
Known try_all(const SearchProblem& problem) {
  std::optional<std::tuple<bool, uint64_t, uint64_t>> best;
  std::vector<uint32_t> values(problem.sizes.size());
  do {
    const Picoseconds cost = cost_of(problem, values);
    if (cost == kImpossible) continue;
    const uint64_t bytes = bytes_of(problem, values);
    const bool fits = problem.memory_bytes == 0 || bytes <= problem.memory_bytes;
    const auto each = fits ? std::tuple(false, cost, bytes) : std::tuple(true, bytes, cost);
    best = best ? std::min(*best, each) : each;
  } while (next(problem.sizes, values));
  if (!best) return {};
  const auto [is_too_large, first, second] = *best;
  return is_too_large ? Known{second, first, false} : Known{first, second, true};
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  // Splitmix64 (Steele, Lea, Flood 2014).
  uint64_t below(uint64_t end) {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % end;
  }

 private:
  uint64_t state_;
};

CostTable table_of(Random& random, const SearchProblem& problem, std::vector<uint32_t> variables, uint64_t most) {
  size_t rows = 1;
  for (const uint32_t variable : variables) rows *= problem.sizes[variable];
  std::vector<Picoseconds> costs;
  for (size_t i = 0; i < rows; ++i) costs.push_back(random.below(most));
  return {std::move(variables), std::move(costs)};
}

// A problem of at most 7 variables of at most 4 values, with ties, impossible costs and bytes.
SearchProblem random_problem(uint64_t seed) {
  Random random(seed);
  SearchProblem problem;
  const uint64_t most_cost = seed % 3 == 0 ? 4 : 1000;
  const uint64_t most_bytes = seed % 2 == 0 ? 4 : 1000;
  const uint64_t impossible_in = 3 + random.below(30);
  const auto count = static_cast<uint32_t>(random.below(8));
  for (uint32_t i = 0; i < count; ++i) problem.sizes.push_back(static_cast<uint32_t>(1 + random.below(4)));
  const uint64_t table_count = random.below(2 * count + 2);
  for (uint64_t i = 0; i < table_count; ++i) {
    std::vector<uint32_t> variables;
    for (uint32_t k = 0; k < count; ++k) {
      if (random.below(count) < 2 && variables.size() < 3) variables.push_back(k);
    }
    const CostTable table = table_of(random, problem, variables, most_cost);
    std::vector<Picoseconds> costs(table.costs.begin(), table.costs.end());
    for (Picoseconds& cost : costs) {
      if (random.below(impossible_in) == 0) cost = random.below(2) == 0 ? kImpossible : kImpossible - random.below(3);
    }
    problem.tables.push_back({table.variables, std::move(costs)});
  }
  for (const uint32_t size : problem.sizes) {
    problem.bytes.emplace_back();
    if (random.below(5) == 0) continue;
    for (uint32_t k = 0; k < size; ++k) problem.bytes.back().push_back(random.below(most_bytes));
  }
  return problem;
}

// From the least of a possible choice to the most.
void limit_memory(SearchProblem& problem, uint64_t seed) {
  uint64_t most = 0;
  for (const auto& bytes : problem.bytes) most += bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
  problem.memory_bytes = 1 + Random(seed).below(most + 1);
}

void expect_consistent(const SearchProblem& problem, const SearchResult& result) {
  ASSERT_EQ(result.values.size(), problem.sizes.size());
  for (size_t i = 0; i < problem.sizes.size(); ++i) ASSERT_LT(result.values[i], problem.sizes[i]);
  EXPECT_EQ(result.cost, cost_of(problem, result.values));
  EXPECT_EQ(result.bytes, bytes_of(problem, result.values));
  EXPECT_EQ(result.fits, problem.memory_bytes == 0 || result.bytes <= problem.memory_bytes);
  EXPECT_LE(result.bound, result.cost);
}

void expect_exact(const SearchProblem& problem, const SearchResult& result) {
  expect_consistent(problem, result);
  const Known known = try_all(problem);
  EXPECT_EQ(result.cost, known.cost);
  if (known.cost == kImpossible) {
    EXPECT_EQ(result.bound, kImpossible);
    return;
  }
  EXPECT_EQ(result.fits, known.fits);
  EXPECT_EQ(result.bytes, known.bytes);
  EXPECT_TRUE(result.least_is_exact);
  if (result.fits) {
    EXPECT_EQ(result.bound, result.cost);
  }
}

// 2 variables: what each value costs, and what both do.
SearchProblem pair_problem(std::vector<Picoseconds> both, std::vector<std::vector<uint64_t>> bytes, uint64_t memory) {
  return {{2, 2}, {{{0, 1}, std::move(both)}}, std::move(bytes), memory};
}

SearchProblem chain(uint32_t length, uint32_t size, uint64_t seed) {
  Random random(seed);
  SearchProblem problem{std::vector<uint32_t>(length, size), {}, {}, 0};
  for (uint32_t i = 0; i < length; ++i) {
    problem.tables.push_back(table_of(random, problem, {i}, 1000));
    if (i > 0) problem.tables.push_back(table_of(random, problem, {i - 1, i}, 1000));
    if (i % 100 == 99) problem.tables.push_back(table_of(random, problem, {i - 5, i}, 1000));
  }
  return problem;
}

SearchProblem clique(uint32_t count, uint32_t size, uint64_t seed) {
  Random random(seed);
  SearchProblem problem{std::vector<uint32_t>(count, size), {}, {}, 0};
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t k = 0; k < i; ++k) problem.tables.push_back(table_of(random, problem, {k, i}, 1000));
  }
  return problem;
}

void give_bytes(SearchProblem& problem, uint64_t seed, uint64_t most) {
  Random random(seed);
  for (const uint32_t size : problem.sizes) {
    problem.bytes.emplace_back();
    for (uint32_t k = 0; k < size; ++k) problem.bytes.back().push_back(random.below(most));
  }
}

TEST(PlanSearch, FindsTheLeastCostAsTryingAllDoes) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    const SearchProblem problem = random_problem(seed);
    expect_exact(problem, search(problem, {}));
  }
}

TEST(PlanSearch, FindsTheLeastCostWithinMemoryAsTryingAllDoes) {
  size_t count_that_fit = 0;
  for (uint64_t seed = 500; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    SearchProblem problem = random_problem(seed);
    limit_memory(problem, seed);
    const SearchResult result = search(problem, {});
    expect_exact(problem, result);
    count_that_fit += result.fits ? 1 : 0;
  }
  EXPECT_GT(count_that_fit, 100u);
  EXPECT_LT(count_that_fit, 450u);
}

TEST(PlanSearch, OfNothingIsNothing) {
  const SearchResult result = search({}, {});
  EXPECT_TRUE(result.values.empty());
  EXPECT_EQ(result.cost, 0u);
  EXPECT_EQ(result.bound, 0u);
  EXPECT_TRUE(result.fits);
}

TEST(PlanSearch, AddsTablesWithoutVariables) {
  const SearchResult result = search({{3}, {{{}, {5}}, {{0}, {9, 7, 8}}, {{}, {30}}}, {}, 0}, {});
  EXPECT_EQ(result.values, std::vector<uint32_t>{1});
  EXPECT_EQ(result.cost, 42u);
}

TEST(PlanSearch, TakesTheFirstOfEqualValuesWithoutTables) {
  EXPECT_EQ(search({{3, 1, 4}, {}, {}, 0}, {}).values, (std::vector<uint32_t>{0, 0, 0}));
}

TEST(PlanSearch, SaysThatAllIsImpossible) {
  const SearchResult result = search(pair_problem(std::vector<Picoseconds>(4, kImpossible), {{1, 2}, {3, 4}}, 1), {});
  EXPECT_EQ(result.cost, kImpossible);
  EXPECT_EQ(result.bound, kImpossible);
}

TEST(PlanSearch, TakesASumThatSaturatesForImpossible) {
  const Picoseconds half = Picoseconds{1} << 63;
  const SearchResult result =
      search({{2, 2}, {{{0}, {half, half + 1}}, {{1}, {half - 1, 7}}, {{0, 1}, {3, half, 2, 0}}}, {}, 0}, {});
  EXPECT_EQ(result.values, (std::vector<uint32_t>{1, 1}));
  EXPECT_EQ(result.cost, half + 8);
}

TEST(PlanSearch, BreaksTiesByTheLowestValue) {
  EXPECT_EQ(search(pair_problem({5, 4, 4, 5}, {}, 0), {}).values, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(search(pair_problem({4, 5, 5, 4}, {}, 0), {}).values, (std::vector<uint32_t>{0, 0}));
  EXPECT_EQ(search({{4}, {{{0}, {2, 1, 1, 1}}}, {}, 0}, {}).values, std::vector<uint32_t>{1});
}

TEST(PlanSearch, TakesFewerBytesAtEqualCost) {
  const SearchResult result = search({{3}, {{{0}, {7, 7, 7}}}, {{30, 10, 20}}, 100}, {});
  EXPECT_EQ(result.values, std::vector<uint32_t>{1});
  EXPECT_EQ(result.bytes, 10u);
}

TEST(PlanSearch, KeepsADearerValueOfFewerBytes) {
  const SearchResult result = search({{2, 2}, {{{0}, {1, 9}}, {{1}, {1, 5}}}, {{10, 2}, {10, 2}}, 12}, {});
  EXPECT_EQ(result.values, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(result.cost, 6u);
  EXPECT_EQ(result.bytes, 12u);
}

TEST(PlanSearch, SaysTheLeastBytesWhereNothingFits) {
  const SearchResult result = search(pair_problem({1, 2, 3, kImpossible}, {{10, 2}, {10, 2}}, 11), {});
  EXPECT_FALSE(result.fits);
  EXPECT_TRUE(result.least_is_exact);
  EXPECT_EQ(result.bytes, 12u);
  EXPECT_EQ(result.values, (std::vector<uint32_t>{0, 1}));  // the cheaper one of two
}

TEST(PlanSearch, EliminatesALongChainInStepsThatGrowWithItsLength) {
  SearchLimits limits;
  limits.most_steps = uint64_t{1} << 26;  // one elimination may take a quarter
  const SearchProblem problem = chain(2000, 12, 1);
  const SearchResult result = search(problem, limits);
  expect_consistent(problem, result);
  EXPECT_EQ(result.bound, result.cost);
}

// Tables with few possible values in a row are small, whatever they would be with all.
TEST(PlanSearch, SplitsNoTablesOfFewPossibleValues) {
  SearchProblem problem = chain(200, 12, 2);
  for (CostTable& table : problem.tables) {
    if (table.variables.size() == 1) continue;
    std::vector<Picoseconds> costs(table.costs.begin(), table.costs.end());
    for (size_t row = 0; row < costs.size(); ++row) {
      if (row % 12 != 0 && row % 12 != (row / 12 * 5 + table.variables[0]) % 12) costs[row] = kImpossible;
    }
    table.costs = std::move(costs);
  }
  SearchLimits limits;
  limits.most_steps = uint64_t{1} << 17;
  const SearchResult result = search(problem, limits);
  expect_consistent(problem, result);
  EXPECT_NE(result.cost, kImpossible);
  EXPECT_EQ(result.bound, result.cost);
}

// The hope that few values are possible is given up after a part of the limit, and the rest does.
TEST(PlanSearch, KeepsWithinItsLimitsOnAGridWhereAllIsPossible) {
  Random random(5);
  SearchProblem problem{std::vector<uint32_t>(100, 8), {}, {}, 0};
  for (uint32_t i = 0; i < 100; ++i) {
    if (i % 5 != 4) problem.tables.push_back(table_of(random, problem, {i, i + 1}, 1000));
    if (i < 95) problem.tables.push_back(table_of(random, problem, {i, i + 5}, 1000));
  }
  SearchLimits limits;
  limits.most_steps = uint64_t{1} << 24;
  const SearchResult result = search(problem, limits);
  expect_consistent(problem, result);
  EXPECT_NE(result.cost, kImpossible);
  EXPECT_LE(result.steps, limits.most_steps);
}

TEST(PlanSearch, EliminatesAStarFromItsRays) {
  Random random(3);
  SearchProblem problem{std::vector<uint32_t>(1001, 12), {}, {}, 0};
  for (uint32_t i = 1; i <= 1000; ++i) problem.tables.push_back(table_of(random, problem, {0, i}, 1000));
  Picoseconds least = kImpossible;
  for (size_t hub = 0; hub < 12; ++hub) {
    Picoseconds cost = 0;
    for (const CostTable& table : problem.tables) {
      const auto row = table.costs.begin() + static_cast<std::ptrdiff_t>(hub * 12);
      cost += *std::min_element(row, row + 12);
    }
    least = std::min(least, cost);
  }
  const SearchResult result = search(problem, {});
  expect_consistent(problem, result);
  EXPECT_EQ(result.cost, least);
  EXPECT_EQ(result.bound, least);
}

TEST(PlanSearch, IsExactForACliqueOfSix) {
  const SearchProblem problem = clique(6, 12, 4);
  const SearchResult result = search(problem, {});
  expect_consistent(problem, result);
  EXPECT_EQ(result.bound, result.cost);
  EXPECT_EQ(result.cost, try_all(problem).cost);
}

TEST(PlanSearch, BoundsWhatSplitTablesCost) {
  SearchLimits limits;
  limits.most_rows = 20;
  size_t inexact = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const SearchProblem problem = clique(6, 4, seed);
    const SearchResult result = search(problem, limits);
    expect_consistent(problem, result);
    const Picoseconds least = try_all(problem).cost;
    EXPECT_LE(result.bound, least);
    EXPECT_LE(least, result.cost);
    inexact += result.bound < least ? 1 : 0;
  }
  EXPECT_GT(inexact, 0u);
}

TEST(PlanSearch, EndsMovesWhereNoMoveOfTwoVariablesIsBetter) {
  SearchLimits limits;
  limits.most_rows = 4;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    const SearchProblem problem = clique(8, 4, seed);
    const SearchResult result = search(problem, limits);
    expect_consistent(problem, result);
    for (size_t a = 0; a < 8; ++a) {
      for (size_t b = 0; b < a; ++b) {
        std::vector<uint32_t> values = result.values;
        for (values[a] = 0; values[a] < 4; ++values[a]) {
          for (values[b] = 0; values[b] < 4; ++values[b]) ASSERT_GE(cost_of(problem, values), result.cost);
        }
      }
    }
  }
}

TEST(PlanSearch, BoundsWhatAPriceOfMemoryFinds) {
  SearchLimits limits;
  limits.most_steps = 3000;  // room for eliminations, not for fronts
  size_t inexact = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    SearchProblem problem = chain(7, 4, seed);
    give_bytes(problem, seed, 1000);
    limit_memory(problem, seed);
    const SearchResult result = search(problem, limits);
    expect_consistent(problem, result);
    const Known known = try_all(problem);
    ASSERT_EQ(result.fits, known.fits);
    if (!known.fits) {
      EXPECT_EQ(result.bytes, known.bytes);
      continue;
    }
    EXPECT_LE(result.bound, known.cost);
    EXPECT_LE(known.cost, result.cost);
    EXPECT_LE(result.cost, known.cost + known.cost / 4);
    inexact += result.bound < known.cost ? 1 : 0;
  }
  EXPECT_GT(inexact, 0u);
}

TEST(PlanSearch, SplitsTablesAndPricesMemoryTogether) {
  SearchLimits limits;
  limits.most_rows = 8;
  for (uint64_t seed = 500; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    SearchProblem problem = random_problem(seed);
    limit_memory(problem, seed);
    const SearchResult result = search(problem, limits);
    expect_consistent(problem, result);
    const Known known = try_all(problem);
    if (known.cost == kImpossible) {
      EXPECT_EQ(result.cost, kImpossible);
    } else if (known.fits) {
      EXPECT_LE(result.bound, known.cost);
      if (result.fits) {
        EXPECT_LE(known.cost, result.cost);
      }
    } else {
      EXPECT_TRUE(!result.fits || result.cost == kImpossible);
      EXPECT_GE(result.bytes, result.cost == kImpossible ? 0 : known.bytes);
      if (result.least_is_exact && !result.fits) {
        EXPECT_EQ(result.bytes, known.bytes);
      }
    }
  }
}

// Least cost within the limit by a table over bytes, for a chain.
Picoseconds least_of_chain(const SearchProblem& problem) {
  const auto costs = [&problem](std::vector<uint32_t> variables) {
    const auto has = [&variables](const CostTable& table) { return table.variables == variables; };
    return std::find_if(problem.tables.begin(), problem.tables.end(), has)->costs;
  };
  std::vector<std::vector<Picoseconds>> least;  // by value of the last variable, by bytes
  for (uint32_t i = 0; i < problem.sizes.size(); ++i) {
    const Costs own = costs({i});
    std::vector<std::vector<Picoseconds>> longer(problem.sizes[i],
                                                 std::vector<Picoseconds>(problem.memory_bytes + 1, kImpossible));
    for (uint32_t value = 0; value < problem.sizes[i]; ++value) {
      const uint64_t bytes = problem.bytes[i][value];
      if (i == 0) longer[value][bytes] = own[value];
      for (uint32_t before = 0; i > 0 && before < problem.sizes[i - 1]; ++before) {
        const Picoseconds both = sum(costs({i - 1, i})[before * problem.sizes[i] + value], own[value]);
        for (uint64_t k = bytes; k <= problem.memory_bytes; ++k) {
          longer[value][k] = std::min(longer[value][k], sum(least[before][k - bytes], both));
        }
      }
    }
    least = std::move(longer);
  }
  Picoseconds all = kImpossible;
  for (const auto& costs_by_bytes : least) {
    for (const Picoseconds cost : costs_by_bytes) all = std::min(all, cost);
  }
  return all;
}

// Moves, each better than the other as their sums were cut off at the most, went on until the steps were used up.
TEST(PlanSearch, EndsMovesWhereSumsSaturate) {
  SearchProblem problem = random_problem(38390);
  limit_memory(problem, 38390);
  expect_exact(problem, search(problem, {}));
}

TEST(PlanSearch, IsExactForALongChainWithinMemory) {
  for (const uint64_t seed : {40u, 100u, 200u}) {
    SCOPED_TRACE(seed);
    SearchProblem problem = chain(80, 4, seed);
    give_bytes(problem, seed, 20);
    for (const auto& bytes : problem.bytes) problem.memory_bytes += *std::min_element(bytes.begin(), bytes.end());
    problem.memory_bytes += seed;
    const SearchResult result = search(problem, {});
    expect_consistent(problem, result);
    EXPECT_TRUE(result.fits);
    EXPECT_EQ(result.cost, least_of_chain(problem));
    EXPECT_EQ(result.bound, result.cost);
  }
}

TEST(PlanSearch, EndsWithinALargeTable) {
  size_t asked = 0;
  SearchLimits limits;
  limits.is_over = [&asked] { return ++asked == 3; };
  const SearchProblem problem = clique(6, 12, 4);  // its first table takes more steps than all that follows
  try {
    search(problem, limits);
    FAIL() << "it did not end";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kDeadline);
  }
  EXPECT_EQ(asked, 3u);
}

}  // namespace
}  // namespace distag::spmd
