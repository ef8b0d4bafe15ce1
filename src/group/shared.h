#pragma once

#include <atomic>
#include <memory>
#include <unordered_map>

#include "base/loop.h"
#include "base/random.h"
#include "base/trace.h"
#include "group/membership.h"
#include "session/session.h"

namespace distag {

class GroupService;

enum class GroupPhase { kCreated, kServing, kStopped };

// A member and the requests counted for it. On the loop.
struct GroupPeer {
  std::shared_ptr<const Peer> peer;
  uint64_t requests_sent = 0;
  uint64_t requests_received = 0;
};

// The state that the parts of the group share with the calls above it. Calls that the host keeps hold
// it.
struct GroupShared {
  GroupShared(Loop& loop_, Random& random_) : loop(loop_), random(random_) {}

  Loop& loop;
  Random& random;

  // Any thread.
  Membership membership;
  std::atomic<GroupPhase> phase{GroupPhase::kCreated};
  Trace trace;

  // Set before the start and not changed after it.
  GroupService* service = nullptr;

  // On the loop.
  Session* session = nullptr;  // nullptr before the start and after the shutdown
  Peer self;
  bool is_open_world = false;
  std::unordered_map<Incarnation, GroupPeer> peers;

  // On the loop. Throws the error with which requests to a lost member fail; for a rank, that of its latest member.
  void check_present(Incarnation worker) const {
    assert_on_loop(loop);
    const Error* gone = session == nullptr ? nullptr : session->gone(worker);
    if (gone != nullptr) throw *gone;
  }
  void check_rank_present(int32_t rank) const {
    if (const auto member = membership.find_by_rank(rank)) check_present(member->peer.incarnation);
  }
  // See Session::lack_text.
  std::string lack_text(Incarnation worker) const { return session == nullptr ? "" : session->lack_text(worker); }
  std::string lack_text_of_rank(int32_t rank) const {
    const auto member = membership.find_by_rank(rank);
    return member ? lack_text(member->peer.incarnation) : "";
  }

  GroupPeer& peer_of(const Peer& peer) {
    assert_on_loop(loop);
    GroupPeer& entry = peers[peer.incarnation];
    if (entry.peer == nullptr) entry.peer = std::make_shared<const Peer>(peer);
    return entry;
  }
};

}  // namespace distag
