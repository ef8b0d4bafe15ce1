#pragma once

#include <cstdint>
#include <memory>
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

// Who is in the group, as this worker sees it. Written on the loop, read anywhere. Of a name or rank that several
// incarnations had, the one with the highest generation counts.
class Membership {
 public:
  void add(const Peer& peer);  // one that is known stays as it is
  void set_state(Incarnation incarnation, MemberState state);

  std::optional<MemberRecord> find(Incarnation incarnation) const;
  std::optional<MemberRecord> find_by_name(const std::string& name) const;
  std::optional<MemberRecord> find_by_rank(int32_t rank) const;
  // The same as find_by_name without a copy; nullptr when nobody has the name.
  std::shared_ptr<const Peer> peer_named(const std::string& name) const;
  std::shared_ptr<const Peer> peer_with(Incarnation incarnation) const;  // likewise
  std::vector<MemberRecord> all() const;                                 // by rank, then generation
  std::vector<MemberRecord> latest() const;                              // of each rank, by rank
  size_t alive_count() const;

 private:
  struct Entry {
    std::shared_ptr<const Peer> peer;
    MemberState state = MemberState::kAlive;
  };
  template <typename Matches>
  const Entry* latest(Matches matches) const;

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // by rank, then generation
};

}  // namespace distag
