#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "autograd/graph_task.h"
#include "dautograd/lineage.h"
#include "wire/message.h"

namespace distag {

// The plan that discovery would find, from records alone.
struct PassPlan {
  struct Part {
    std::vector<wire::PairBits> sends;  // sends that the pass reaches
    uint64_t check = 0;                 // sum over the recvs reached from them; at the initiator also from the roots
  };
  std::map<Incarnation, Part> parts;  // for all participants, the initiator included
};

// The plan of a pass of `self` whose walk from the roots reached these recvs; nullopt if a record is missing or open.
std::optional<PassPlan> make_pass_plan(const Lineage& lineage, const LineageLimits& limits, Incarnation self,
                                       const std::vector<autograd::GraphWalk::Reached>& reached);

// See EXPECT in schemas/autograd.fbs.
uint64_t hash_of_slot(const Id& pair, uint32_t slot);

}  // namespace distag
