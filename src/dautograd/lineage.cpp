#include "dautograd/lineage.h"

#include <algorithm>
#include <utility>

namespace distag {
namespace {

bool is_known_to(const std::vector<Incarnation>& workers, Incarnation worker) {
  return std::find(workers.begin(), workers.end(), worker) != workers.end();
}

// False if the send has too many values.
bool add_links(const LineageLimits& limits, const SendNode& send, Lineage::Links* links) {
  const Id& pair = send.info().pair;
  if (limits.records_per_context == 0 || send.slots() > Lineage::kMaxSlots) return false;
  const size_t before = links->size();
  for (uint32_t slot = 0; slot < send.slots(); ++slot) {
    const autograd::Origins origins = autograd::origins_of(send.next()[slot]);
    if (origins.is_open() || origins.all().size() > limits.origins_per_slot) {
      links->push_back({pair, {}, slot, 1});
      continue;
    }
    for (const autograd::Origin& origin : origins.all()) links->push_back({pair, origin.recv, slot, origin.slot});
  }
  if (links->size() == before) links->push_back({pair, {}, 0, 0});
  return true;
}

}  // namespace

bool Lineage::has_room(const LineageBudget& budget) const {
  return records_.size() < budget.limits.records_per_context && budget.records < budget.limits.records_per_worker;
}

Lineage::Links Lineage::tell(const LineageLimits& limits, const SendNode& send) {
  Links told;
  if (!add_links(limits, send, &told) || told.size() > limits.links_per_message) return {};
  const Incarnation to = send.info().peer;
  // The rest that does not fit is left for another message.
  for (size_t next = 0; next < told.size(); ++next) {
    const Id on = told[next].on;
    if (!on || on.maker == to) continue;
    const size_t before = told.size();
    if (!add_told(limits, on, to, &told) || told.size() > limits.links_per_message) told.resize(before);
  }
  return told;
}

// False if the pair is not known here, or is known to `to`.
bool Lineage::add_told(const LineageLimits& limits, const Id& pair, Incarnation to, Links* told) {
  const auto other = records_.find(pair);
  std::vector<Incarnation>* known_to = nullptr;
  if (other != records_.end()) {
    known_to = &other->second.known_to;
    if (is_known_to(*known_to, to)) return false;
    told->push_back(other->second.first);
    told->insert(told->end(), other->second.more.begin(), other->second.more.end());
  } else {
    const auto own = sends_.find(pair);
    if (own == sends_.end() || own->second->info().peer == to) return false;
    known_to = &told_[pair];
    if (is_known_to(*known_to, to) || !add_links(limits, *own->second, told)) return false;
  }
  if (told->size() <= limits.links_per_message) known_to->push_back(to);
  return true;
}

void Lineage::take(LineageBudget& budget, const Links& told, Incarnation from, Incarnation self) {
  for (auto first = told.begin(); first != told.end();) {
    const Id pair = first->pair;
    const auto end = std::find_if(first, told.end(), [&pair](const Link& link) { return link.pair != pair; });
    const auto is_too_far = [](const Link& link) { return link.slot >= kMaxSlots || link.on_slot >= kMaxSlots; };
    const auto known = records_.find(pair);
    if (known != records_.end()) {
      if (pair.maker != from && !is_known_to(known->second.known_to, from)) known->second.known_to.push_back(from);
    } else if (pair.maker != self && has_room(budget) && std::none_of(first, end, is_too_far)) {
      Record record{*first, Links(first + 1, end), {}};
      if (pair.maker != from) record.known_to.push_back(from);
      records_.emplace(pair, std::move(record));
      ++budget.records;
    }
    first = end;
  }
}

bool Lineage::find(const LineageLimits& limits, const Id& pair, Links* links) const {
  links->clear();
  const auto other = records_.find(pair);
  if (other == records_.end()) {
    const auto own = sends_.find(pair);
    return own != sends_.end() && add_links(limits, *own->second, links);
  }
  links->push_back(other->second.first);
  links->insert(links->end(), other->second.more.begin(), other->second.more.end());
  return true;
}

void Lineage::forget(LineageBudget& budget, const Id& pair) {
  budget.records -= records_.erase(pair);
  told_.erase(pair);
}

void Lineage::clear(LineageBudget& budget) {
  budget.records -= records_.size();
  records_.clear();
  told_.clear();
}

}  // namespace distag
