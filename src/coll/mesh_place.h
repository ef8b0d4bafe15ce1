#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/loop.h"
#include "base/loop_gate.h"
#include "coll/mesh_state.h"
#include "group/group.h"
#include "layout/move.h"

namespace distag {

struct MeshEnvironment {
  Loop& loop;
  Executor& compute;  // reductions that take long
  Group& group;
  uint64_t max_early = uint64_t{1} << 30;  // bytes of parts of calls that this member has not reached
};

// The place of one member in a mesh: its members, rules and surroundings. Nothing of it changes while the mesh lives,
// so any thread may read it.
struct MeshPlace {
  const MeshEnvironment environment;
  const std::shared_ptr<LoopGate> gate;
  const Id id;
  const layout::MeshShape shape;
  const int64_t position;
  const std::vector<std::shared_ptr<const Peer>> members;  // by position
  const Nanos timeout;                                     // for calls that have none
  const MeshPolicy policy;
  const std::vector<uint64_t> proposed;  // by position: the counter in the member's request for the mesh

  int32_t rank_of(int64_t member) const { return shape.ranks()[static_cast<size_t>(member)]; }
  const Peer& peer(int64_t member) const { return *members[static_cast<size_t>(member)]; }
  std::optional<int64_t> position_of(Incarnation incarnation) const;
  std::vector<Incarnation> other_members() const;
  std::string describe_member(int64_t member) const { return describe_peer(peer(member)); }
  std::string where(const std::string& line) const;  // `mesh "train", line "b"`
  // On the loop.
  void send(int64_t to, wire::Body body) const { environment.group.send(peer(to), std::move(body), nullptr); }
};

}  // namespace distag
