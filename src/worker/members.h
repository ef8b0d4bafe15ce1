#pragma once

#include <memory>

#include "worker/event_log.h"
#include "worker/group_links.h"
#include "worker/layers.h"
#include "worker/member_news.h"

namespace distag {

// The other members of a running group, from join to end; the layers learn of each change before the host does. Only
// the rendezvous knows the members: a peer with the key of the group may claim anything about itself. Only the session
// knows which members are gone. On the loop.
class Members {
 public:
  Members(const WorkerEnvironment& environment, Layers& layers, GroupLinks& links, EventLog& events);

  // An open world admits all peers with a name and rank of their own; a static one only members that come back.
  bool may_join(const Peer& peer) const;
  // Asks the rendezvous about a peer that says HELLO, and gives the answer to the session.
  void look_up(const Peer& stranger);
  // A stranger that the rendezvous knows. `is_serving`: the worker is started and does not stop.
  void on_admitted(const Peer& peer, bool is_serving);
  void on_lost(const Peer& peer, const Error& error);
  void on_left(const Peer& peer);
  // Gives the host the member's record in the membership.
  void tell_of(const Peer& peer);
  // For the rendezvous: the member answers, or is lost within a lease.
  void probe(Incarnation member, Task on_alive);

 private:
  void add(const Peer& peer);
  void on_gone(const Peer& peer);

  Loop& loop_;
  Log& log_;
  Layers& layers_;
  GroupLinks& links_;
  EventLog& events_;
  const std::shared_ptr<MemberNews> news_;
  bool told_of_descriptors_ = false;  // that few are left
};

}  // namespace distag
