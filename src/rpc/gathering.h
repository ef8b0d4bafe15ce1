#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "session/session.h"
#include "wire/message.h"

namespace distag {

// Those who have come to a rendezvous so far, and the rules of who may. Its first joiner says what the group is.
class Gathering {
 public:
  // `where` is the uri, for messages.
  Gathering(std::string where, std::string job, int32_t world_size);

  // Throws what the joiner did wrong: PROTOCOL (another version), DENIED (another job), INVALID_ARGUMENT (another size
  // of the world, a rank outside of it), INVALID_STATE (its name or rank is taken).
  void check(const wire::Join& join) const;
  // Whether the joiner expects a world of another size, which nobody can mend by waiting.
  bool is_other_world(const wire::Join& join) const;
  // Who holds the name or the rank that the joiner wants; nullptr: nobody.
  const Peer* find_rival(const wire::Member& member) const;
  bool has(Incarnation incarnation) const;

  void add(const wire::Member& member);  // which passed check()
  void remove(Incarnation incarnation);

  bool is_complete() const { return members_.size() == static_cast<size_t>(world_size_); }
  std::vector<int32_t> missing() const;
  std::vector<Peer> members() const;  // by rank

 private:
  const std::string where_;
  const std::string job_;
  const int32_t world_size_;
  std::map<int32_t, Peer> members_;
  std::map<std::string, uint64_t> generations_;  // joins of each name
};

wire::Member to_member(const Peer& peer);
Peer to_peer(const wire::Member& member);

// DEADLINE, listing the ranks that did not come.
Error missing_error(const std::string& where, const std::vector<int32_t>& missing, int32_t world_size);

}  // namespace distag
