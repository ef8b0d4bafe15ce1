#include "dautograd/pass_plan.h"

#include <utility>

#include "dautograd/nodes.h"

namespace distag {
namespace {

// Collects the slots of pairs that the records lead to; each counts once, for the worker that holds its recv.
class Planner {
 public:
  Planner(const Lineage& lineage, const LineageLimits& limits, Incarnation self) : lineage_(lineage), limits_(limits) {
    plan_.parts[self];
  }

  void reach(const Id& pair, uint32_t slot, Incarnation holder) {
    Planned& planned = pairs_[pair];
    if (planned.bits.size() <= slot) planned.bits.resize(slot + size_t{1});
    if (planned.bits[slot]) return;
    planned.bits[slot] = true;
    if (planned.fresh.empty()) unfinished_.push_back(pair);
    planned.fresh.push_back(slot);
    plan_.parts[holder].check += hash_of_slot(pair, slot);
  }

  bool follow() {
    while (!unfinished_.empty()) {
      const Id pair = unfinished_.back();
      unfinished_.pop_back();
      if (!lineage_.find(limits_, pair, &links_)) return false;
      std::vector<bool> fresh;
      for (const uint32_t slot : std::exchange(pairs_[pair].fresh, {})) {
        if (fresh.size() <= slot) fresh.resize(slot + size_t{1});
        fresh[slot] = true;
      }
      for (const Lineage::Link& link : links_) {
        if (link.slot >= fresh.size() || !fresh[link.slot]) continue;
        if (Lineage::is_open(link)) return false;
        if (link.on) reach(link.on, link.on_slot, pair.maker);
      }
    }
    return true;
  }

  PassPlan take() {
    for (auto& [pair, planned] : pairs_) {
      plan_.parts[pair.maker].sends.push_back({pair.counter, pair.maker, std::move(planned.bits)});
    }
    return std::move(plan_);
  }

 private:
  struct Planned {
    autograd::Bits bits;
    std::vector<uint32_t> fresh;
  };

  const Lineage& lineage_;
  const LineageLimits& limits_;
  Lineage::Links links_;  // links of one pair
  PassPlan plan_;
  std::unordered_map<Id, Planned> pairs_;
  std::vector<Id> unfinished_;
};

}  // namespace

std::optional<PassPlan> make_pass_plan(const Lineage& lineage, const LineageLimits& limits, Incarnation self,
                                       const std::vector<autograd::GraphWalk::Reached>& reached) {
  Planner planner(lineage, limits, self);
  for (const autograd::GraphWalk::Reached& item : reached) {
    const Id& pair = static_cast<const RecvNode&>(*item.recv).info().pair;
    for (uint32_t slot = 0; slot < item.slots.size(); ++slot) {
      if (item.slots[slot]) planner.reach(pair, slot, self);
    }
  }
  if (!planner.follow()) return std::nullopt;
  return planner.take();
}

uint64_t hash_of_slot(const Id& pair, uint32_t slot) {
  uint64_t hash = uint64_t{slot} + 1;
  for (const uint64_t word : {pair.maker, pair.counter}) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace distag
