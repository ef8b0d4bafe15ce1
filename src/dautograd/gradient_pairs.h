#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "dautograd/dautograd_shared.h"
#include "dautograd/distributed_context.h"

namespace distag {

// The pairs that the GRADs of one pass with create_graph make on one worker: their gradients leave and arrive with
// their history, as the values of calls do. They become pairs of the context when the pass commits. On the loop.
class GradientPairs {
 public:
  using Sends = std::unordered_map<Id, std::shared_ptr<SendNode>>;

  GradientPairs(DautogradShared& shared, DistributedContext& context) : shared_(shared), context_(context) {}

  // For gradients that go out for what came by `recv`. No pair if none has a history. Throws OVERLOADED.
  wire::AutogradMetadata on_send(const PairInfo& recv, const Values& gradients);
  // Gives a history to the gradients that have come for what went out by `send`. Throws Violation, and changes nothing
  // then.
  void on_receive(const PairInfo& send, const wire::AutogradMetadata& metadata, const Values& gradients);

  const Sends& sends() const { return sends_; }
  void forget(const Id& pair) { sends_.erase(pair); }  // a later pass has freed it

  // prepare_commit() may find no memory, and changes nothing then; commit() needs none.
  void prepare_commit();
  void commit() noexcept;
  // Forgets the pairs. Returns the sends, which may hold a large graph.
  Sends drop();

 private:
  DautogradShared& shared_;
  DistributedContext& context_;
  Sends sends_;
  size_t recv_count_ = 0;
  std::vector<Id> learned_;  // pairs of which there was no record before
};

// The send of a pair of the context, also one of a pass that is done here: its verdict may be on its way, and known to
// other workers. nullptr if the context has no such pair. On the loop.
std::shared_ptr<SendNode> find_send(const DistributedContext& context, const Id& pair);
GradientPairs::Sends all_sends(const DistributedContext& context);
void forget_send(DistributedContext& context, const Id& pair);

}  // namespace distag
