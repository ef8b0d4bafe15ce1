#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "session/session.h"

namespace distag {

enum class MemberState : int32_t { kAlive = 1, kLeft = 2, kLost = 3 };

struct MemberRecord {
  Peer peer;
  MemberState state = MemberState::kAlive;
};

// Who is in the group, as this worker sees it. Written on the loop, read anywhere.
class Membership {
 public:
  void add(const Peer& peer);  // a newer generation of a name replaces the older in find_by_name
  void set_state(Incarnation incarnation, MemberState state);

  std::optional<MemberRecord> find(Incarnation incarnation) const;
  std::optional<MemberRecord> find_by_name(const std::string& name) const;  // the latest
  std::optional<MemberRecord> find_by_rank(int32_t rank) const;             // the latest
  std::vector<MemberRecord> all() const;                                    // by rank
  size_t alive_count() const;

 private:
  mutable std::mutex mutex_;
  std::vector<MemberRecord> records_;
};

}  // namespace distag
