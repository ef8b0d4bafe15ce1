#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "dautograd/lineage_limits.h"
#include "dautograd/nodes.h"
#include "wire/message.h"

namespace distag {

// The records that one worker keeps in all its contexts.
struct LineageBudget {
  LineageLimits limits;
  size_t records = 0;
};

// The records of one context that a worker has: which values of other pairs each value of a pair depends on. Records of
// its own pairs are read from their sends, while these exist. For a pair of another worker the first record stays: if a
// later one differs, one of the two is false. Lives with its context.
class Lineage {
 public:
  using Link = wire::AutogradMetadata::Link;
  using Links = std::vector<Link>;
  using Sends = std::unordered_map<Id, std::shared_ptr<SendNode>>;
  // The most values of one message; a message with more has no record.
  static constexpr uint32_t kMaxSlots = 65536;

  explicit Lineage(const Sends& sends) : sends_(sends) {}

  static bool is_open(const Link& link) { return !link.on && link.on_slot != 0; }

  // The records for the message of a send: that of its pair, and those that it leads to and that the receiver lacks.
  // They count as told.
  Links tell(const LineageLimits& limits, const SendNode& send);
  // Keeps the records that a message carries.
  void take(LineageBudget& budget, const Links& told, Incarnation from, Incarnation self);

  // Writes the links of a pair. False if they are not known.
  bool find(const LineageLimits& limits, const Id& pair, Links* links) const;
  bool has(const Id& pair) const { return records_.contains(pair); }  // for a pair of another worker
  void forget(LineageBudget& budget, const Id& pair);
  void clear(LineageBudget& budget);

 private:
  // Most have one link, and come from the maker.
  struct Record {
    Link first;
    Links more;
    std::vector<Incarnation> known_to;  // beside the maker
  };

  bool has_room(const LineageBudget& budget) const;
  bool add_told(const LineageLimits& limits, const Id& pair, Incarnation to, Links* told);

  const Sends& sends_;
  std::unordered_map<Id, Record> records_;
  std::unordered_map<Id, std::vector<Incarnation>> told_;  // for own pairs, beside the receivers of their messages
};

}  // namespace distag
