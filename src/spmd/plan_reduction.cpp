#include "spmd/plan_reduction.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace distag::spmd {
namespace {

constexpr size_t kMostRowsCompared = size_t{1} << 16;  // of a table

}  // namespace

ReducedProblem::ReducedProblem(const SearchProblem& problem, SearchWork& work)
    : work_(work), sizes_(problem.sizes), tables_(problem.tables), bytes_(problem.bytes), tables_of_(sizes_.size()) {
  bytes_.resize(sizes_.size());
  std::set<uint32_t> open;
  for (uint32_t variable = 0; variable < sizes_.size(); ++variable) {
    bytes_[variable].resize(sizes_[variable]);
    kept_.emplace_back(sizes_[variable]);
    std::iota(kept_[variable].begin(), kept_[variable].end(), 0);
    open.insert(variable);
  }
  for (size_t i = 0; i < tables_.size(); ++i) {
    for (const uint32_t variable : tables_[i].variables) tables_of_[variable].push_back(i);
  }
  while (!open.empty()) {
    const uint32_t variable = *open.begin();
    open.erase(open.begin());
    if (!drop_values(variable)) continue;
    for (const size_t table : tables_of_[variable]) {
      for (const uint32_t other : tables_[table].variables) {
        if (other != variable) open.insert(other);
      }
    }
  }
  shrunk_.clear();
  take_least_bytes();
}

std::vector<uint32_t> ReducedProblem::originals(const std::vector<uint32_t>& values) const {
  std::vector<uint32_t> originals;
  for (size_t variable = 0; variable < values.size(); ++variable)
    originals.push_back(kept_[variable][values[variable]]);
  return originals;
}

bool ReducedProblem::drop_values(uint32_t variable) {
  for (const size_t table : tables_of_[variable]) {
    if (tables_[table].costs.size() > kMostRowsCompared) return false;
  }
  find_witnesses(variable);
  std::vector<bool> is_dropped(sizes_[variable]);
  for (uint32_t a = 0; a < sizes_[variable]; ++a) {
    for (uint32_t b = a + 1; b < sizes_[variable] && !is_dropped[a]; ++b) {
      if (is_dropped[b]) continue;
      is_dropped[b] = beats(variable, a, b);
      is_dropped[a] = !is_dropped[b] && beats(variable, b, a);
    }
  }
  std::vector<uint32_t> kept;
  for (uint32_t value = 0; value < sizes_[variable]; ++value) {
    if (!is_dropped[value]) kept.push_back(value);
  }
  if (kept.size() == sizes_[variable]) return false;
  for (const size_t table : tables_of_[variable]) shrink(tables_[table], variable, kept);
  for (size_t i = 0; i < kept.size(); ++i) {
    bytes_[variable][i] = bytes_[variable][kept[i]];
    kept_[variable][i] = kept_[variable][kept[i]];
  }
  bytes_[variable].resize(kept.size());
  kept_[variable].resize(kept.size());
  sizes_[variable] = static_cast<uint32_t>(kept.size());
  return true;
}

bool ReducedProblem::beats(uint32_t variable, uint32_t value, uint32_t other) {
  if (bytes_[variable][value] > bytes_[variable][other]) return false;
  for (const Witness& each : witnesses_[other]) {
    const Picoseconds* costs = tables_[each.table].costs.data() + each.row;
    if (costs[value * each.stride] > costs[other * each.stride]) return false;
  }
  return std::all_of(tables_of_[variable].begin(), tables_of_[variable].end(),
                     [&](size_t table) { return is_no_dearer(tables_[table], variable, value, other); });
}

// For each value, the first row of each table in which it is possible: another value that is not possible there does
// not beat it. Most tables are of ops, with few possible values in a row, so this tells most pairs of values apart.
void ReducedProblem::find_witnesses(uint32_t variable) {
  witnesses_.assign(sizes_[variable], {});
  for (const size_t number : tables_of_[variable]) {
    const CostTable& table = tables_[number];
    const size_t stride = stride_of(table, variable);
    std::vector<bool> is_found(sizes_[variable]);
    size_t missing = sizes_[variable];
    for (size_t block = 0; block < table.costs.size() && missing > 0; block += stride * sizes_[variable]) {
      for (size_t row = block; row < block + stride && missing > 0; ++row) {
        for (size_t value = 0; value < sizes_[variable]; ++value) {
          if (is_found[value] || table.costs[row + value * stride] == kImpossible) continue;
          is_found[value] = true;
          --missing;
          witnesses_[value].push_back({number, stride, row});
        }
        work_.add(sizes_[variable]);
      }
    }
  }
}

bool ReducedProblem::is_no_dearer(const CostTable& table, uint32_t variable, uint32_t value, uint32_t other) {
  const size_t stride = stride_of(table, variable);
  for (size_t block = 0; block < table.costs.size(); block += stride * sizes_[variable]) {
    for (size_t row = block; row < block + stride; ++row) {
      if (table.costs[row + value * stride] > table.costs[row + other * stride]) return false;
    }
    work_.add(stride);
  }
  return true;
}

size_t ReducedProblem::stride_of(const CostTable& table, uint32_t variable) const {
  size_t stride = 1;
  for (size_t i = table.variables.size(); table.variables[--i] != variable;) stride *= sizes_[table.variables[i]];
  return stride;
}

void ReducedProblem::shrink(CostTable& table, uint32_t variable, const std::vector<uint32_t>& kept) {
  const size_t stride = stride_of(table, variable);
  std::vector<uint64_t> key = {reinterpret_cast<uintptr_t>(table.costs.data()), stride, sizes_[variable]};
  key.insert(key.end(), kept.begin(), kept.end());
  const auto known = shrunk_.find(key);
  if (known != shrunk_.end()) {
    table.costs = known->second.second;
    return;
  }
  std::vector<Picoseconds> costs;
  for (size_t block = 0; block < table.costs.size(); block += stride * sizes_[variable]) {
    for (const uint32_t value : kept) {
      const auto from = table.costs.begin() + static_cast<std::ptrdiff_t>(block + value * stride);
      costs.insert(costs.end(), from, from + static_cast<std::ptrdiff_t>(stride));
    }
  }
  const Costs before = std::exchange(table.costs, std::move(costs));
  shrunk_.emplace(std::move(key), std::pair(before, table.costs));
}

void ReducedProblem::take_least_bytes() {
  for (std::vector<uint64_t>& bytes : bytes_) {
    const uint64_t least = *std::min_element(bytes.begin(), bytes.end());
    for (uint64_t& each : bytes) each -= least;
    least_bytes_ = saturating_sum(least_bytes_, least);
  }
}

}  // namespace distag::spmd
