#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "session/session.h"

namespace distag {

struct MemberRecord {
  Peer peer;
  Standing state = Standing::kMember;
};

// The members of the group, as reported to the host: the latest incarnation under each rank, which belongs to one name.
// Written on the loop when the layers learn of a change, read on any thread. The session, not this class, decides which
// message may be sent to which member.
class Membership {
 public:
  void add(const Peer& peer);  // ignores a known incarnation, and one older than the known one of its rank
  void set_state(Incarnation incarnation, Standing state);  // ignores all but the latest incarnation of a rank

  std::optional<MemberRecord> find(Incarnation incarnation) const;  // only the latest incarnation of its rank
  std::optional<MemberRecord> find_by_name(const std::string& name) const;
  std::optional<MemberRecord> find_by_rank(int32_t rank) const;
  // The same as find_by_name without a copy; nullptr when no member has the name.
  std::shared_ptr<const Peer> peer_named(const std::string& name) const;
  std::shared_ptr<const Peer> peer_with(Incarnation incarnation) const;  // the same, by incarnation
  std::vector<MemberRecord> all() const;                                 // by rank
  size_t alive_count() const;
  Incarnation lowest_alive() const;                      // the living member of lowest rank; 0: none
  std::vector<Incarnation> those(Standing state) const;  // by rank

 private:
  struct Entry {
    std::shared_ptr<const Peer> peer;
    Standing state = Standing::kMember;
  };
  using Entries = std::map<int32_t, Entry>;
  static std::optional<MemberRecord> record_of(const Entry* entry);
  const Entry* with(Incarnation incarnation) const REQUIRES(mutex_);
  const Entry* named(const std::string& name) const REQUIRES(mutex_);

  mutable Mutex mutex_;
  Entries entries_ GUARDED_BY(mutex_);   // by rank
  size_t alive_ GUARDED_BY(mutex_) = 0;  // number of living members in entries_
  std::unordered_map<std::string, int32_t> rank_of_name_ GUARDED_BY(mutex_);
  std::unordered_map<Incarnation, int32_t> rank_of_ GUARDED_BY(mutex_);
};

}  // namespace distag
