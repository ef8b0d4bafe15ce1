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

// The worker of one name: its latest incarnation, and the errors of the incarnations that are gone.
struct NamedPeer {
  Peer latest;
  Error gone;                      // error of the latest incarnation, once it has a grave
  ConnectionToken connection;      // connection of that incarnation, to answer what it still sends
  std::optional<Error> restarted;  // error of the incarnations before the latest
};

// The remains of an incarnation's record.
struct Tombstone {
  Standing standing = Standing::kLost;
  NamedPeer* name = nullptr;
};

// All incarnations that this worker has known, and the connections that they have dialled. An incarnation has a record
// or a grave, never both, and never a record again after a grave. Each record is in all() once. A connection leads to
// the incarnation that has said HELLO on it. On the loop.
class PeerTable {
 public:
  struct Dialler {
    Incarnation incarnation = 0;
    PeerRecord* record = nullptr;  // nullptr: the incarnation is in its grave
  };

  PeerTable(StreamShared& shared, FrameMemory& memory, PeerRecord::Events& events)
      : shared_(shared), memory_(memory), events_(events) {}

  PeerRecord* find(Incarnation incarnation) const;
  const Tombstone* find_grave(Incarnation incarnation) const;
  const NamedPeer* find_name(const std::string& name) const;
  // The error of an incarnation that is no longer a member; nullptr: it is a member, or unknown.
  const Error* gone(Incarnation incarnation) const;
  // All records in the order in which they were added, because hash order differs from run to run.
  const std::vector<PeerRecord*>& all() const { return in_order_; }
  bool has_left(Incarnation incarnation) const;

  // Makes room for one more peer and returns the number of peers that there is room for.
  size_t make_room();
  // Requires room for the record and an incarnation that is new.
  PeerRecord& add(const Peer& peer);
  NamedPeer& name_of(const Peer& peer) { return names_[peer.name]; }
  // Called when the latest incarnation of the name has its grave and a newer one is known.
  void mark_restarted(const NamedPeer& name);
  // Replaces the record by a grave.
  void bury(PeerRecord& record);

  const Dialler* find_dialler(const ConnectionToken& from) const;
  // The peer has dialled again: messages on its earlier connections are ignored from now on.
  void connect(PeerRecord& record, const ConnectionToken& from);
  // Ignores the rest of the peer's connection. Half a lease later the peer dials again, and sends everything once more
  // that has taken no effect.
  void disconnect(PeerRecord& record);

  // Destroys at most `most` records, the last first. Returns false when all are gone.
  bool close_some(size_t most);

 private:
  StreamShared& shared_;
  FrameMemory& memory_;
  PeerRecord::Events& events_;
  std::unordered_map<Incarnation, std::unique_ptr<PeerRecord>> records_;
  std::vector<PeerRecord*> in_order_;  // points into records_
  std::unordered_map<std::string, NamedPeer> names_;
  std::unordered_map<Incarnation, Tombstone> graves_;
  std::unordered_map<ConnectionToken, Dialler, TokenHash> connections_;
};

}  // namespace distag
