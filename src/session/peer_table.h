#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "session/peer_record.h"

namespace distag {

struct TokenHash {
  size_t operator()(const ConnectionToken& token) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(token.data()), token.size()});
  }
};

// One worker under its name: its latest incarnation, and why that is gone or the ones before it are.
struct NamedPeer {
  Peer latest;
  Error gone;                      // of the latest, once it is in its grave
  ConnectionToken connection;      // of it, for the answer to what it still sends
  std::optional<Error> restarted;  // of the ones before
};

// The record that is left of an incarnation.
struct Tombstone {
  Standing standing = Standing::kLost;
  NamedPeer* name = nullptr;
};

// All incarnations that this worker has known, and the connections that they have dialled. An incarnation has a record
// or a grave, never both; once it has a grave, it never has a record again. Each record is among all() once. A
// connection leads to the incarnation that has said HELLO on it. On the loop.
class PeerTable {
 public:
  struct Dialler {
    Incarnation incarnation = 0;
    PeerRecord* record = nullptr;  // nullptr: in its grave
  };

  PeerTable(StreamShared& shared, FrameMemory& memory, PeerRecord::Events& events)
      : shared_(shared), memory_(memory), events_(events) {}

  PeerRecord* find(Incarnation incarnation) const;
  const Tombstone* find_grave(Incarnation incarnation) const;
  const NamedPeer* find_name(const std::string& name) const;
  // The error of one that is no member any more; nullptr: a member, or unknown.
  const Error* gone(Incarnation incarnation) const;
  // In the order in which they were added: hash order differs from run to run.
  const std::vector<PeerRecord*>& all() const { return in_order_; }
  bool has_left(Incarnation incarnation) const;

  // For one more peer; returns the number of those that there is room for.
  size_t make_room();
  // There is room for it, and the incarnation is new.
  PeerRecord& add(const Peer& peer);
  NamedPeer& name_of(const Peer& peer) { return names_[peer.name]; }
  // The latest of the name is in its grave, and a newer one is known.
  void mark_restarted(const NamedPeer& name);
  // A grave takes the place of the record.
  void bury(PeerRecord& record);

  const Dialler* find_dialler(const ConnectionToken& from) const;
  // The peer has dialled again: what comes on connections before the last one leads nowhere from now on.
  void connect(PeerRecord& record, const ConnectionToken& from);
  // The rest of its connection is not heard, so that the peer dials again, half a lease later, and sends once more what
  // has taken no effect.
  void disconnect(PeerRecord& record);

  // Destroys the last ones, at most `most`. False: all are gone.
  bool close_some(size_t most);

 private:
  StreamShared& shared_;
  FrameMemory& memory_;
  PeerRecord::Events& events_;
  std::unordered_map<Incarnation, std::unique_ptr<PeerRecord>> records_;
  std::vector<PeerRecord*> in_order_;  // of records_
  std::unordered_map<std::string, NamedPeer> names_;
  std::unordered_map<Incarnation, Tombstone> graves_;
  std::unordered_map<ConnectionToken, Dialler, TokenHash> connections_;
};

}  // namespace distag
