#pragma once

#include <string>

#include "session/peer_record.h"

namespace distag {

// What keeps this worker and a peer from each other now. At most one obstacle counts, the first of: this worker cannot
// reach the peer, the peer says that it cannot answer, this worker may be deaf.
struct Obstacle {
  const Lack* lack = nullptr;  // nullptr: nothing
  const char* effect = "";
  Nanos lasts = 0;
  bool holds_back = false;  // what waits cannot go out
};
Obstacle obstacle_between(const PeerRecord& record, const StreamShared& shared);
// Returns `worker "b" (rank 1) cannot be reached from here: ` and the lack.
std::string text_of(const Obstacle& obstacle, const Peer& peer);

// Returns `worker "b" (rank 1) is lost: `, `why`, and when the peer was last heard; `heard_at` is -1 for never.
Error loss_error(const Peer& peer, const StreamShared& shared, Nanos heard_at, Status status, const std::string& why);
// Names the latest lack as well: the peer may have given this worker up for it, or the other way round.
Error loss_error(const PeerRecord& record, const StreamShared& shared, Status status, const std::string& why);

}  // namespace distag
