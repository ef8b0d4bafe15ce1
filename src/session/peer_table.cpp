#include "session/peer_table.h"

#include <utility>

namespace distag {

PeerRecord* PeerTable::find(Incarnation incarnation) const {
  const auto found = records_.find(incarnation);
  return found == records_.end() ? nullptr : found->second.get();
}

const Tombstone* PeerTable::find_grave(Incarnation incarnation) const {
  const auto found = graves_.find(incarnation);
  return found == graves_.end() ? nullptr : &found->second;
}

const NamedPeer* PeerTable::find_name(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &found->second;
}

const Error* PeerTable::gone(Incarnation incarnation) const {
  if (const PeerRecord* record = find(incarnation)) return record->is_member() ? nullptr : &record->gone;
  const Tombstone* grave = find_grave(incarnation);
  if (grave == nullptr) return nullptr;
  return grave->standing == Standing::kRestarted ? &*grave->name->restarted : &grave->name->gone;
}

bool PeerTable::has_left(Incarnation incarnation) const {
  if (const PeerRecord* record = find(incarnation)) return record->standing == Standing::kLeft;
  const Tombstone* grave = find_grave(incarnation);
  return grave != nullptr && grave->standing == Standing::kLeft;
}

size_t PeerTable::make_room() {
  if (in_order_.size() == in_order_.capacity()) in_order_.reserve(2 * in_order_.size() + 8);
  return in_order_.capacity();
}

// The record enters the list last, which needs no memory: it is in both containers or in neither.
PeerRecord& PeerTable::add(const Peer& peer) {
  auto record = std::make_unique<PeerRecord>(shared_, peer, memory_, events_);
  PeerRecord& added = *record;
  records_.emplace(peer.incarnation, std::move(record));
  in_order_.push_back(&added);
  return added;
}

void PeerTable::mark_restarted(const NamedPeer& name) {
  graves_[name.latest.incarnation].standing = Standing::kRestarted;
  connections_.erase(name.connection);
}

// The fields of the name are written before the record goes. The grave still answers a latest incarnation on its
// connection; a restarted one gets no answer.
void PeerTable::bury(PeerRecord& record) {
  NamedPeer& name = names_.at(record.peer.name);
  const bool is_latest = name.latest.incarnation == record.peer.incarnation;
  connections_.erase(record.stale_connection);
  const auto dialler = connections_.find(record.connection);
  if (is_latest) {
    name.gone = record.gone;
    name.connection = record.connection;
    if (dialler != connections_.end()) dialler->second.record = nullptr;
  } else {
    if (!name.restarted) name.restarted = record.gone;
    if (dialler != connections_.end()) connections_.erase(dialler);
  }
  graves_[record.peer.incarnation] = {is_latest ? record.standing : Standing::kRestarted, &name};
  std::erase(in_order_, &record);
  records_.erase(record.peer.incarnation);
}

const PeerTable::Dialler* PeerTable::find_dialler(const ConnectionToken& from) const {
  const auto found = connections_.find(from);
  return found == connections_.end() ? nullptr : &found->second;
}

void PeerTable::connect(PeerRecord& record, const ConnectionToken& from) {
  ConnectionToken token = from;
  connections_[from] = {record.peer.incarnation, &record};
  connections_.erase(record.stale_connection);
  record.stale_connection = std::exchange(record.connection, std::move(token));
}

void PeerTable::disconnect(PeerRecord& record) {
  connections_.erase(record.stale_connection);
  record.stale_connection = std::exchange(record.connection, {});
}

bool PeerTable::close_some(size_t most) {
  connections_.clear();
  if (in_order_.empty()) return false;
  for (size_t i = 0; i < most && !in_order_.empty(); ++i) {
    records_.erase(in_order_.back()->peer.incarnation);
    in_order_.pop_back();
  }
  return true;
}

}  // namespace distag
