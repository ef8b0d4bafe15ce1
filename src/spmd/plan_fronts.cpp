#include "spmd/plan_fronts.h"

#include <algorithm>

namespace distag::spmd {
namespace {

constexpr uint64_t kShareOfSteps = 32;  // a weight of a front takes longer than a step, and stays in memory

}  // namespace

FrontElimination::FrontElimination(const Elimination& elimination, uint64_t budget, const Cut& cut, SearchWork& work)
    : elimination_(elimination),
      budget_(budget),
      cut_(cut),
      work_(work),
      weights_left_(std::min(work.left(), work.limits().most_steps / kShareOfSteps)) {}

std::span<const Weight> FrontElimination::Table::at(size_t row) const {
  if (ends.empty()) return {&weights[row], 1};
  const size_t begin = row == 0 ? 0 : ends[row - 1];
  return std::span(weights).subspan(begin, ends[row] - begin);
}

std::optional<std::vector<uint32_t>> FrontElimination::values(const std::vector<SharedWeights>& tables,
                                                              uint64_t wanted) {
  tables_.clear();
  for (const SharedWeights& table : tables) tables_.push_back({*table, {}});
  for (size_t i = 0; i < elimination_.groups().size(); ++i) {
    if (!add_table(i)) return std::nullopt;
  }
  const Front front = front_of(fronts_of_rest());
  if (front.empty() || weights_left_ == 0) return std::nullopt;
  const auto is_wanted = [wanted](const Weight& weight) { return weight.second <= wanted; };
  weights_left_ = UINT64_MAX;  // the rest only makes fronts of some rows again
  targets_.assign(tables_.size(), {});
  set_targets(parts_of(*std::find_if(front.begin(), front.end() - 1, is_wanted), fronts_of_rest()),
              elimination_.rest());
  std::vector<uint32_t> values(elimination_.sizes().size());
  for (size_t i = elimination_.groups().size(); i-- > 0;) {
    choose(elimination_.groups()[i], targets_[elimination_.table_count() + i], values);
  }
  return values;
}

FrontElimination::Fronts FrontElimination::fronts_of_rest() const {
  Fronts fronts;
  for (const size_t table : elimination_.rest()) fronts.push_back(tables_[table].at(0));
  return fronts;
}

// Gives false if the table passes the limits.
bool FrontElimination::add_table(size_t group_number) {
  const Elimination::Group& group = elimination_.groups()[group_number];
  Table table;
  Elimination::Walk walk(group, elimination_.sizes());
  Fronts fronts(group.inputs.size());
  do {
    Front all;
    for (size_t value = 0; value < elimination_.sizes()[group.variable]; ++value) {
      for (size_t i = 0; i < fronts.size(); ++i) {
        const Elimination::Input& input = group.inputs[i];
        fronts[i] = tables_[input.table].at(walk.offset(i) + value * input.stride);
      }
      const Front front = front_of(fronts);
      all.insert(all.end(), front.begin(), front.end());
    }
    std::sort(all.begin(), all.end());
    prune(all);
    drop_dear(all, group_number, table.ends.size());
    table.weights.insert(table.weights.end(), all.begin(), all.end());
    table.ends.push_back(table.weights.size());
    if (table.weights.size() > work_.limits().most_rows) weights_left_ = 0;
    if (weights_left_ == 0) return false;
  } while (walk.next());
  tables_.push_back(std::move(table));
  return true;
}

// The front of all sums of one weight from each front.
FrontElimination::Front FrontElimination::front_of(const Fronts& fronts) {
  Weight single;
  for (const auto& front : fronts) {
    if (front.size() == 1) single = single + front[0];
  }
  Front all{single};
  work_.add(fronts.size());
  for (const auto& front : fronts) {
    if (front.size() != 1) all = sum(all, front);
  }
  prune(all);
  return all;
}

FrontElimination::Front FrontElimination::sum(const Front& a, std::span<const Weight> b) {
  const uint64_t size = saturating_product(a.size(), b.size());
  weights_left_ -= std::min(weights_left_, size);
  if (weights_left_ == 0) return {};
  Front all;
  all.reserve(size);
  for (const Weight& one : a) {
    for (const Weight& other : b) all.push_back(one + other);
    work_.add(b.size());
  }
  if (a.size() > 1) std::sort(all.begin(), all.end());
  prune(all);
  return all;
}

void FrontElimination::prune(Front& sorted) const {
  size_t count = 0;
  for (const Weight& weight : sorted) {
    if (weight.first == UINT64_MAX || weight.second > budget_) continue;
    if (count == 0 || weight.second < sorted[count - 1].second) sorted[count++] = weight;
  }
  sorted.resize(count);
}

void FrontElimination::drop_dear(Front& front, size_t group_number, size_t row) const {
  if (cut_.completions.empty()) return;
  const uint64_t completion = cut_.completions[group_number][row];
  std::erase_if(front, [&](const Weight& weight) {
    return saturating_sum(saturating_sum(weight.first, price_of(weight.second, cut_.price)), completion) > cut_.most;
  });
}

// Chooses the first value whose front has the target, and sets the targets of its tables.
void FrontElimination::choose(const Elimination::Group& group, Weight target, std::vector<uint32_t>& values) {
  Fronts fronts(group.inputs.size());
  std::vector<size_t> tables;
  for (const Elimination::Input& input : group.inputs) tables.push_back(input.table);
  for (uint32_t value = 0; value < elimination_.sizes()[group.variable]; ++value) {
    for (size_t i = 0; i < fronts.size(); ++i) {
      const Elimination::Input& input = group.inputs[i];
      fronts[i] = tables_[input.table].at(Elimination::offset_of(group, input, values) + value * input.stride);
    }
    const Front front = front_of(fronts);
    if (!std::binary_search(front.begin(), front.end(), target)) continue;
    values[group.variable] = value;
    set_targets(parts_of(target, fronts), tables);
    return;
  }
}

// Weights, one of each front, that add up to the target.
std::vector<Weight> FrontElimination::parts_of(Weight target, const Fronts& fronts) {
  std::vector<Front> sums{{Weight{}}};  // of the fronts before
  for (const auto& front : fronts) sums.push_back(sum(sums.back(), front));
  std::vector<Weight> parts(fronts.size());
  for (size_t i = fronts.size(); i-- > 0;) {
    bool is_found = false;
    for (const Weight& before : sums[i]) {
      const auto part =
          std::find_if(fronts[i].begin(), fronts[i].end(), [&](const Weight& each) { return before + each == target; });
      work_.add(fronts[i].size());
      if (part == fronts[i].end()) continue;
      parts[i] = *part;
      target = before;
      is_found = true;
      break;
    }
    if (!is_found) return parts;
  }
  return parts;
}

void FrontElimination::set_targets(const std::vector<Weight>& parts, const std::vector<size_t>& tables) {
  for (size_t i = 0; i < tables.size(); ++i) targets_[tables[i]] = parts[i];
}

}  // namespace distag::spmd
