#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "autograd/graph_task.h"
#include "dautograd/distributed_context.h"
#include "dautograd/lineage.h"

namespace distag {

// The pairs of a context that one pass reaches on one worker: sends, whose gradients come from elsewhere, and recvs,
// whose gradients go there. Touched by its part alone.
//
// The worker with the other half of each pair is one of its peers, as are workers that were added by need(): losing any
// of them fails the pass. What is reached stays so until the pass ends; a pass without retain_graph then frees exactly
// these pairs.
class PassReach {
 public:
  using Sends = std::unordered_map<Id, std::shared_ptr<SendNode>>;

  explicit PassReach(DistributedContext& context) : context_(context) {}

  void add(const std::shared_ptr<SendNode>& send);
  void add_all(Sends sends);
  void add(const std::vector<autograd::GraphWalk::Reached>& recvs);
  // nullptr: not reached.
  std::shared_ptr<SendNode> find(const Id& pair) const;
  const Sends& sends() const { return sends_; }
  // The sum over the slots of all recvs that were added, to compare with a plan.
  uint64_t checksum() const { return checksum_; }

  void need(Incarnation peer) { peers_.insert(peer); }
  bool needs(Incarnation peer) const { return peers_.contains(peer); }

  // ---- the end ----

  std::set<Incarnation> take_peers() { return std::move(peers_); }
  // Removes these pairs from the context and its records.
  void forget_pairs(LineageBudget& budget);
  // The sends may hold a large graph.
  Sends take_sends() { return std::move(sends_); }

 private:
  DistributedContext& context_;
  Sends sends_;
  std::unordered_set<const autograd::Node*> recvs_;
  uint64_t checksum_ = 0;
  std::set<Incarnation> peers_;
};

}  // namespace distag
