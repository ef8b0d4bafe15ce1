#include "rpc/membership.h"

#include <algorithm>
#include <utility>

namespace distag {

void Membership::add(const Peer& peer) {
  auto shared = std::make_shared<const Peer>(peer);
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.peer->incarnation == peer.incarnation) return;
  }
  const auto place = std::find_if(entries_.begin(), entries_.end(), [&peer](const Entry& entry) {
    return std::pair(entry.peer->rank, entry.peer->generation) > std::pair(peer.rank, peer.generation);
  });
  entries_.insert(place, Entry{std::move(shared), MemberState::kAlive});
}

void Membership::set_state(Incarnation incarnation, MemberState state) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.peer->incarnation == incarnation) entry.state = state;
  }
}

template <typename Matches>
const Membership::Entry* Membership::latest(Matches matches) const {
  const Entry* latest = nullptr;
  for (const Entry& entry : entries_) {
    if (!matches(*entry.peer)) continue;
    if (latest == nullptr || entry.peer->generation >= latest->peer->generation) latest = &entry;
  }
  return latest;
}

std::optional<MemberRecord> Membership::find(Incarnation incarnation) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Entry* entry = latest([incarnation](const Peer& peer) { return peer.incarnation == incarnation; });
  if (entry == nullptr) return std::nullopt;
  return MemberRecord{*entry->peer, entry->state};
}

std::optional<MemberRecord> Membership::find_by_name(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Entry* entry = latest([&name](const Peer& peer) { return peer.name == name; });
  if (entry == nullptr) return std::nullopt;
  return MemberRecord{*entry->peer, entry->state};
}

std::optional<MemberRecord> Membership::find_by_rank(int32_t rank) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Entry* entry = latest([rank](const Peer& peer) { return peer.rank == rank; });
  if (entry == nullptr) return std::nullopt;
  return MemberRecord{*entry->peer, entry->state};
}

std::shared_ptr<const Peer> Membership::peer_named(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Entry* entry = latest([&name](const Peer& peer) { return peer.name == name; });
  return entry == nullptr ? nullptr : entry->peer;
}

std::shared_ptr<const Peer> Membership::peer_with(Incarnation incarnation) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const Entry* entry = latest([incarnation](const Peer& peer) { return peer.incarnation == incarnation; });
  return entry == nullptr ? nullptr : entry->peer;
}

std::vector<MemberRecord> Membership::all() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<MemberRecord> records;
  records.reserve(entries_.size());
  for (const Entry& entry : entries_) records.push_back({*entry.peer, entry.state});
  return records;
}

std::vector<MemberRecord> Membership::latest() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<MemberRecord> records;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const bool is_latest = i + 1 == entries_.size() || entries_[i + 1].peer->rank != entries_[i].peer->rank;
    if (is_latest) records.push_back({*entries_[i].peer, entries_[i].state});
  }
  return records;
}

size_t Membership::alive_count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(),
                                           [](const Entry& entry) { return entry.state == MemberState::kAlive; }));
}

}  // namespace distag
