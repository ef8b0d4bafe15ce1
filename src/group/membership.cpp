#include "group/membership.h"

#include <algorithm>
#include <utility>

#include "base/mutex.h"

namespace distag {

void Membership::add(const Peer& peer) {
  auto shared = std::make_shared<const Peer>(peer);
  MutexLock lock(mutex_);
  if (rank_of_.contains(peer.incarnation)) return;
  const auto found = entries_.find(peer.rank);
  if (found != entries_.end()) {
    const Peer& before = *found->second.peer;
    if (before.generation > peer.generation) return;
    if (found->second.state == Standing::kMember) --alive_;
    rank_of_.erase(before.incarnation);
    rank_of_name_.erase(before.name);
  }
  entries_[peer.rank] = Entry{std::move(shared), Standing::kMember};
  ++alive_;
  rank_of_[peer.incarnation] = peer.rank;
  rank_of_name_[peer.name] = peer.rank;
}

const Membership::Entry* Membership::with(Incarnation incarnation) const {
  const auto found = rank_of_.find(incarnation);
  return found == rank_of_.end() ? nullptr : &entries_.at(found->second);
}

const Membership::Entry* Membership::named(const std::string& name) const {
  const auto found = rank_of_name_.find(name);
  return found == rank_of_name_.end() ? nullptr : &entries_.at(found->second);
}

std::optional<MemberRecord> Membership::record_of(const Entry* entry) {
  if (entry == nullptr) return std::nullopt;
  return MemberRecord{*entry->peer, entry->state};
}

void Membership::set_state(Incarnation incarnation, Standing state) {
  MutexLock lock(mutex_);
  const auto found = rank_of_.find(incarnation);
  if (found == rank_of_.end()) return;
  Entry& entry = entries_.at(found->second);
  if (entry.state == Standing::kMember) --alive_;
  if (state == Standing::kMember) ++alive_;
  entry.state = state;
}

std::optional<MemberRecord> Membership::find(Incarnation incarnation) const {
  MutexLock lock(mutex_);
  return record_of(with(incarnation));
}

std::optional<MemberRecord> Membership::find_by_name(const std::string& name) const {
  MutexLock lock(mutex_);
  return record_of(named(name));
}

std::optional<MemberRecord> Membership::find_by_rank(int32_t rank) const {
  MutexLock lock(mutex_);
  const auto found = entries_.find(rank);
  return record_of(found == entries_.end() ? nullptr : &found->second);
}

std::shared_ptr<const Peer> Membership::peer_named(const std::string& name) const {
  MutexLock lock(mutex_);
  const Entry* entry = named(name);
  return entry == nullptr ? nullptr : entry->peer;
}

std::shared_ptr<const Peer> Membership::peer_with(Incarnation incarnation) const {
  MutexLock lock(mutex_);
  const Entry* entry = with(incarnation);
  return entry == nullptr ? nullptr : entry->peer;
}

std::vector<MemberRecord> Membership::all() const {
  MutexLock lock(mutex_);
  std::vector<MemberRecord> records;
  records.reserve(entries_.size());
  for (const auto& [rank, entry] : entries_) records.push_back({*entry.peer, entry.state});
  return records;
}

size_t Membership::alive_count() const {
  MutexLock lock(mutex_);
  return alive_;
}

Incarnation Membership::lowest_alive() const {
  MutexLock lock(mutex_);
  const auto lowest = std::find_if(entries_.begin(), entries_.end(),
                                   [](const auto& entry) { return entry.second.state == Standing::kMember; });
  return lowest == entries_.end() ? 0 : lowest->second.peer->incarnation;
}

std::vector<Incarnation> Membership::those(Standing state) const {
  MutexLock lock(mutex_);
  std::vector<Incarnation> found;
  for (const auto& [rank, entry] : entries_) {
    if (entry.state == state) found.push_back(entry.peer->incarnation);
  }
  return found;
}

}  // namespace distag
