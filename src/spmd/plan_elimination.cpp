#include "spmd/plan_elimination.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/error.h"

namespace distag::spmd {
namespace {

constexpr uint64_t kStepsBetweenQuestions = uint64_t{1} << 16;
constexpr int kPriceBits = 32;
constexpr uint64_t kLeastRuns = 4;  // the limit of steps has room for this many runs of the elimination
// Few values are possible in most rows, and equal layers are worked out once: a first run may read this share of all
// values, and stops beyond that.
constexpr uint64_t kPossibleShare = 32;
constexpr uint64_t kMostTables = 4;   // of the most rows, which the first run keeps
constexpr uint64_t kReadsOfStep = 4;  // values that are read in order

using Wide = unsigned __int128;

uint64_t narrow(Wide number) { return number > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(number); }

}  // namespace

uint64_t saturating_product(uint64_t a, uint64_t b) { return narrow(Wide{a} * b); }

uint64_t price_of(uint64_t bytes, uint64_t price) { return narrow(Wide{bytes} * price >> kPriceBits); }

uint64_t price_at(uint64_t cost, uint64_t bytes) { return narrow((Wide{cost} << kPriceBits) / bytes); }

void SearchWork::add(uint64_t steps) {
  steps_ = saturating_sum(steps_, steps);
  if (steps_ - asked_ < kStepsBetweenQuestions) return;
  asked_ = steps_;
  if (limits_.is_over && limits_.is_over())
    fail(Status::kDeadline, "the search was not done in time after {} steps", steps_);
}

Elimination::Walk::Walk(const Group& group, const std::vector<uint32_t>& sizes)
    : group_(group), sizes_(sizes), digits_(group.scope.size()), offsets_(group.inputs.size()) {}

bool Elimination::Walk::next() {
  for (size_t k = digits_.size(); k-- > 0;) {
    const uint32_t last = sizes_[group_.scope[k]] - 1;
    const bool is_carried = digits_[k] == last;
    digits_[k] = is_carried ? 0 : digits_[k] + 1;
    for (size_t i = 0; i < offsets_.size(); ++i) {
      const size_t stride = group_.inputs[i].strides[k];
      offsets_[i] = is_carried ? offsets_[i] - stride * last : offsets_[i] + stride;
    }
    if (!is_carried) return true;
  }
  return false;
}

Elimination::Elimination(std::vector<uint32_t> sizes, std::vector<std::vector<uint32_t>> scopes, SearchWork& work)
    : sizes_(std::move(sizes)),
      table_count_(scopes.size()),
      work_(work),
      scopes_(std::move(scopes)),
      marks_(sizes_.size()) {
  arrange_for(kPossibleShare);
}

void Elimination::arrange_for(uint64_t possible_share) {
  const SearchLimits& limits = work_.limits();
  uint64_t most_rows = limits.most_rows;
  arrange(most_rows);
  while (saturating_product(steps_ / possible_share, kLeastRuns) > limits.most_steps && most_rows > 1) {
    most_rows /= 4;
    arrange(most_rows);
  }
}

void Elimination::arrange(uint64_t most_rows) {
  scopes_.resize(table_count_);
  groups_.clear();
  rest_.clear();
  steps_ = 0;
  is_exact_ = true;
  std::vector<Tables> readers(sizes_.size());
  for (size_t table = 0; table < table_count_; ++table) {
    for (const uint32_t variable : scopes_[table]) readers[variable].push_back(table);
    if (scopes_[table].empty()) rest_.push_back(table);
  }
  std::vector<uint64_t> rows(sizes_.size());
  std::set<std::pair<uint64_t, uint32_t>> order;
  for (uint32_t variable = 0; variable < sizes_.size(); ++variable) {
    rows[variable] = rows_of(joined(readers[variable], variable));
    order.emplace(rows[variable], variable);
  }
  while (!order.empty()) {
    const uint32_t variable = order.begin()->second;
    order.erase(order.begin());
    const std::vector<uint32_t> neighbours = joined(readers[variable], variable);
    eliminate(variable, split(readers[variable], variable, most_rows), readers);
    for (const uint32_t neighbour : neighbours) {
      order.erase({rows[neighbour], neighbour});
      rows[neighbour] = rows_of(joined(readers[neighbour], neighbour));
      order.emplace(rows[neighbour], neighbour);
    }
  }
}

void Elimination::eliminate(uint32_t variable, const std::vector<Tables>& parts, std::vector<Tables>& readers) {
  is_exact_ = is_exact_ && parts.size() == 1;
  for (const Tables& part : parts) {
    Group group{variable, joined(part, variable), {}, 0};
    std::sort(group.scope.begin(), group.scope.end());
    group.rows = rows_of(group.scope);
    for (const size_t table : part) group.inputs.push_back(input_of(table, group));
    const uint64_t reads = saturating_product(sizes_[variable], std::max<uint64_t>(1, part.size()));
    steps_ = saturating_sum(steps_, saturating_product(group.rows, reads));
    const std::set<size_t> replaced(part.begin(), part.end());
    for (const uint32_t other : group.scope) {
      std::erase_if(readers[other], [&replaced](size_t table) { return replaced.count(table) != 0; });
      readers[other].push_back(scopes_.size());
    }
    if (group.scope.empty()) rest_.push_back(scopes_.size());
    scopes_.push_back(group.scope);
    groups_.push_back(std::move(group));
  }
}

// The variables of any of the tables, each once. Their order does not matter.
std::vector<uint32_t> Elimination::joined(const Tables& tables, uint32_t without) {
  work_.add(tables.size());
  marks_[without] = ++unions_;
  std::vector<uint32_t> scope;
  for (const size_t table : tables) {
    for (const uint32_t variable : scopes_[table]) {
      if (std::exchange(marks_[variable], unions_) != unions_) scope.push_back(variable);
    }
  }
  return scope;
}

uint64_t Elimination::rows_of(const std::vector<uint32_t>& scope) const {
  uint64_t rows = 1;
  for (const uint32_t variable : scope) rows = saturating_product(rows, sizes_[variable]);
  return rows;
}

// A single table is never split: it was given, or was within the limits when it was made.
std::vector<Elimination::Tables> Elimination::split(const Tables& tables, uint32_t variable, uint64_t most_rows) {
  if (rows_of(joined(tables, variable)) <= most_rows) return {tables};
  Tables largest_first = tables;
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [this](size_t a, size_t b) { return rows_of(scopes_[a]) > rows_of(scopes_[b]); });
  std::vector<Tables> parts;
  for (const size_t table : largest_first) {
    const auto part = std::find_if(parts.begin(), parts.end(), [&](Tables& each) {
      each.push_back(table);
      const bool has_room = rows_of(joined(each, variable)) <= most_rows;
      each.pop_back();
      return has_room;
    });
    if (part != parts.end()) {
      part->push_back(table);
    } else {
      parts.push_back({table});
    }
  }
  return parts;
}

Elimination::Input Elimination::input_of(size_t table, const Group& group) const {
  Input input{table, 0, std::vector<size_t>(group.scope.size())};
  size_t stride = 1;
  for (size_t i = scopes_[table].size(); i-- > 0;) {
    const uint32_t variable = scopes_[table][i];
    const auto place = std::lower_bound(group.scope.begin(), group.scope.end(), variable);
    (variable == group.variable ? input.stride : input.strides[static_cast<size_t>(place - group.scope.begin())]) =
        stride;
    stride *= sizes_[variable];
  }
  return input;
}

size_t Elimination::offset_of(const Group& group, const Input& input, const std::vector<uint32_t>& values) {
  size_t offset = 0;
  for (size_t k = 0; k < group.scope.size(); ++k) offset += input.strides[k] * values[group.scope[k]];
  return offset;
}

Elimination::Least Elimination::least(std::vector<SharedWeights> tables) const {
  eliminate(tables, {});
  return least_in(tables);
}

Elimination::Least Elimination::first_least(const std::vector<SharedWeights>& tables) {
  const SearchLimits& limits = work_.limits();
  const uint64_t most_steps = limits.most_steps / kLeastRuns;
  RunLimits run;
  if (steps_ > most_steps) run = {most_steps, saturating_product(limits.most_rows, kMostTables)};
  uint64_t before = work_.steps();
  std::vector<SharedWeights> all = tables;
  if (!eliminate(all, run)) {
    arrange_for(1);
    before = work_.steps();
    all = tables;
    eliminate(all, {});
  }
  run_steps_ = work_.steps() - before;
  return least_in(all);
}

Elimination::Least Elimination::least_in(const std::vector<SharedWeights>& tables) const {
  Weight sum;
  for (const size_t table : rest_) sum = sum + (*tables[table])[0];
  return {sum, values_of(tables)};
}

// From the last group to the first: the least sum with a row of a group and a value, less that table's own weight.
std::vector<std::vector<uint64_t>> Elimination::completions(std::vector<SharedWeights> tables) const {
  eliminate(tables, {});
  std::vector<std::vector<uint64_t>> completions;
  for (const Group& group : groups_) completions.emplace_back(group.rows, UINT64_MAX);
  const auto take = [&](size_t table, size_t row, uint64_t sum) {
    if (table < table_count_ || sum == UINT64_MAX) return;
    uint64_t& least = completions[table - table_count_][row];
    least = std::min(least, sum - (*tables[table])[row].first);
  };
  uint64_t all = 0;
  for (const size_t table : rest_) all = saturating_sum(all, (*tables[table])[0].first);
  for (const size_t table : rest_) take(table, 0, all);
  for (size_t i = groups_.size(); i-- > 0;) {
    const Group& group = groups_[i];
    Walk walk(group, sizes_);
    size_t row = 0;
    do {
      for (size_t value = 0; value < sizes_[group.variable]; ++value) {
        uint64_t sum = completions[i][row];
        const auto place = [&](size_t k) { return walk.offset(k) + value * group.inputs[k].stride; };
        for (size_t k = 0; k < group.inputs.size(); ++k) {
          sum = saturating_sum(sum, (*tables[group.inputs[k].table])[place(k)].first);
        }
        for (size_t k = 0; k < group.inputs.size(); ++k) take(group.inputs[k].table, place(k), sum);
        work_.add(group.inputs.size());
      }
      ++row;
    } while (walk.next());
  }
  return completions;
}

// Appends the table of each group. Groups of the same tables in the same places have the same one. False: it ended at
// the limits.
bool Elimination::eliminate(std::vector<SharedWeights>& tables, const RunLimits& limits) const {
  const uint64_t last_step = saturating_sum(work_.steps(), limits.steps);
  uint64_t rows = 0;
  std::map<std::vector<uint64_t>, SharedWeights> known;
  for (const Group& group : groups_) {
    std::vector<uint64_t> key = {sizes_[group.variable]};
    for (const uint32_t variable : group.scope) key.push_back(sizes_[variable]);
    for (const Input& input : group.inputs) {
      key.push_back(reinterpret_cast<uintptr_t>(tables[input.table].get()));
      key.push_back(input.stride);
      key.insert(key.end(), input.strides.begin(), input.strides.end());
    }
    SharedWeights& table = known[std::move(key)];
    if (table == nullptr) {
      rows = saturating_sum(rows, group.rows);
      if (rows > limits.rows) return false;
      table = std::make_shared<const Weights>(least_of(group, tables, last_step));
      if (table->empty()) return false;
    }
    tables.push_back(table);
  }
  return true;
}

// The values of a variable that are possible in a table, for each combination of the others. Most tables are of ops,
// with few of them.
class Elimination::Possible {
 public:
  Possible(const Weights& table, size_t stride, size_t size) : stride_(stride), block_(stride * size) {
    for (size_t block = 0; block < table.size(); block += block_) {
      for (size_t row = block; row < block + stride; ++row) {
        begins_.push_back(values_.size());
        for (uint32_t value = 0; value < size; ++value) {
          if (table[row + value * stride].first != UINT64_MAX) values_.push_back(value);
        }
      }
    }
    begins_.push_back(values_.size());
  }

  // `offset`: in the table, at the variable's value 0.
  std::span<const uint32_t> at(size_t offset) const {
    const size_t row = offset / block_ * stride_ + offset % stride_;
    return std::span(values_).subspan(begins_[row], begins_[row + 1] - begins_[row]);
  }

 private:
  size_t stride_;
  size_t block_;
  std::vector<size_t> begins_;
  std::vector<uint32_t> values_;
};

// The share of possible rows of a table, in 1/1024.
size_t Elimination::share_of(const Weights& table) {
  const auto possible =
      std::count_if(table.begin(), table.end(), [](const Weight& each) { return each.first != UINT64_MAX; });
  return static_cast<size_t>(possible) * 1024 / table.size();
}

// Tries the values that are possible in the table that has the fewest. Gives no weights if it passes the last step.
Weights Elimination::least_of(const Group& group, const std::vector<SharedWeights>& tables, uint64_t last_step) const {
  const size_t size = sizes_[group.variable];
  Weights result, own(size);  // own: the sum of tables that have no other variable
  result.reserve(group.rows);
  std::vector<size_t> joint;
  for (size_t i = 0; i < group.inputs.size(); ++i) {
    const Weights& table = *tables[group.inputs[i].table];
    work_.add(1 + table.size() / kReadsOfStep);
    if (table.size() != size) {
      joint.push_back(i);
    } else {
      for (size_t value = 0; value < size; ++value) own[value] = own[value] + table[value];
    }
  }
  if (joint.empty()) return {*std::min_element(own.begin(), own.end())};
  std::vector<size_t> shares;
  for (const size_t i : joint) shares.push_back(share_of(*tables[group.inputs[i].table]));
  const size_t fewest = joint[static_cast<size_t>(std::min_element(shares.begin(), shares.end()) - shares.begin())];
  const Possible possible(*tables[group.inputs[fewest].table], group.inputs[fewest].stride, size);
  std::vector<const Weight*> from(joint.size());
  std::vector<size_t> strides;
  for (const size_t i : joint) strides.push_back(group.inputs[i].stride);
  Walk walk(group, sizes_);
  do {
    for (size_t k = 0; k < joint.size(); ++k) {
      from[k] = tables[group.inputs[joint[k]].table]->data() + walk.offset(joint[k]);
    }
    const std::span<const uint32_t> values = possible.at(walk.offset(fewest));
    Weight least{UINT64_MAX, UINT64_MAX};
    for (const uint32_t value : values) {
      Weight sum = own[value];
      for (size_t k = 0; k < joint.size(); ++k) sum = sum + from[k][value * strides[k]];
      least = std::min(least, sum);
    }
    result.push_back(least);
    work_.add((1 + values.size()) * joint.size());
    if (work_.steps() > last_step) return {};
  } while (walk.next());
  return result;
}

// The variable that was eliminated last comes first, so that the other variables of its tables have values.
std::vector<uint32_t> Elimination::values_of(const std::vector<SharedWeights>& tables) const {
  std::vector<uint32_t> values(sizes_.size());
  for (size_t end = groups_.size(); end > 0;) {
    const uint32_t variable = groups_[end - 1].variable;
    Weights sums(sizes_[variable]);
    for (; end > 0 && groups_[end - 1].variable == variable; --end) {
      const Group& group = groups_[end - 1];
      for (const Input& input : group.inputs) {
        const size_t offset = offset_of(group, input, values);
        for (size_t value = 0; value < sums.size(); ++value) {
          sums[value] = sums[value] + (*tables[input.table])[offset + value * input.stride];
        }
      }
    }
    values[variable] = static_cast<uint32_t>(std::min_element(sums.begin(), sums.end()) - sums.begin());
  }
  return values;
}

}  // namespace distag::spmd
