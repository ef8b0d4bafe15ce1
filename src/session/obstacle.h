#pragma once

#include <string>

#include "session/peer_record.h"

namespace distag {

// The reason why this worker and a peer cannot reach each other now. Only the first that applies counts: this worker
// cannot reach the peer, the peer says that it cannot answer, this worker may be deaf.
struct Obstacle {
  const Lack* lack = nullptr;  // nullptr: there is no obstacle
  const char* effect = "";
  Nanos lasts = 0;
  bool holds_back = false;  // waiting messages cannot go out
};
Obstacle obstacle_between(const PeerRecord& record, const StreamShared& shared);
// Returns `worker "b" (rank 1) cannot be reached from here: ` and the lack's message.
std::string text_of(const Obstacle& obstacle, const Peer& peer);

// Returns `worker "b" (rank 1) is lost: `, `why`, and when the peer was last heard; `heard_at` is -1 for never.
Error loss_error(const Peer& peer, const StreamShared& shared, Nanos heard_at, Status status, const std::string& why);
// Also names the latest lack: it may be why either side gave the other up.
Error loss_error(const PeerRecord& record, const StreamShared& shared, Status status, const std::string& why);

}  // namespace distag
