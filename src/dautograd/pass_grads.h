#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "dautograd/dautograd_shared.h"
#include "dautograd/gradient_pairs.h"
#include "dautograd/part_state.h"
#include "dautograd/pass_graph.h"
#include "dautograd/pass_info.h"

namespace distag {

// The gradients that leave and reach one part of a pass, as GRADs. On the loop.
//
// sent() counts a GRAD before it is given to its stream, received() one before it goes into the graph. Over all parts
// of a pass the sums are equal once none is on its way, which is what the initiator compares; so a part is not done,
// nor idle, before each GRAD that it counts has its number on a stream.
class PassGrads {
 public:
  // The gradients of one send, as they came.
  struct Gradient {
    std::shared_ptr<SendNode> send;
    autograd::Bits live;
    Tensors tensors;  // per slot
  };
  class Owner {
   public:
    virtual ~Owner() = default;
    // A GRAD has got its number. `last`: see PassObserver.
    virtual void report_if_done(wire::Grad* last) = 0;
  };

  PassGrads(DautogradShared& shared, PassGraph& graph, PartState& state, DistributedContext& context,
            const PassInfo& info);

  // Sends those to the initiator last: the last one of all may report that this part is done. The owner is called for
  // none before all are counted.
  void send(std::vector<autograd::GraphTask::Leaving> leaving, bool is_planned, const std::shared_ptr<Owner>& owner);
  // Takes the gradients out of the message. Throws Violation if they do not fit the send's values.
  Gradient take(const std::shared_ptr<SendNode>& send, wire::Grad& grad);
  void deliver(Gradient gradient);

  bool are_numbered() const { return unnumbered_ == 0; }
  uint64_t sent() const { return sent_; }
  uint64_t received() const { return received_; }
  const std::set<Incarnation>& receivers() const { return receivers_; }
  // The pairs that GRADs with a history make; nullptr where they have none.
  GradientPairs* pairs() const { return pairs_.get(); }

 private:
  void send(autograd::GraphTask::Leaving leaving, bool is_planned, const std::shared_ptr<Owner>& owner);

  DautogradShared& shared_;
  PassGraph& graph_;
  PartState& state_;
  const Id context_;
  const PassInfo info_;
  const std::unique_ptr<GradientPairs> pairs_;
  size_t unnumbered_ = 0;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  std::set<Incarnation> receivers_;
};

}  // namespace distag
