#include "dautograd/pass_reach.h"

#include <algorithm>

#include "dautograd/gradient_pairs.h"
#include "dautograd/pass_plan.h"

namespace distag {

void PassReach::add(const std::shared_ptr<SendNode>& send) {
  const PairInfo& info = send->info();
  peers_.insert(info.peer);
  sends_.emplace(info.pair, send);
}

void PassReach::add_all(Sends sends) {
  for (const auto& [pair, send] : sends) peers_.insert(send->info().peer);
  sends_ = std::move(sends);
}

void PassReach::add(const std::vector<autograd::GraphWalk::Reached>& recvs) {
  for (const autograd::GraphWalk::Reached& item : recvs) {
    const PairInfo& info = static_cast<const RecvNode&>(*item.recv).info();
    peers_.insert(info.peer);
    recvs_.insert(item.recv.get());
    for (uint32_t slot = 0; slot < item.slots.size(); ++slot) {
      if (item.slots[slot]) checksum_ += hash_of_slot(info.pair, slot);
    }
  }
}

std::shared_ptr<SendNode> PassReach::find(const Id& pair) const {
  const auto found = sends_.find(pair);
  return found == sends_.end() ? nullptr : found->second;
}

void PassReach::forget_pairs(LineageBudget& budget) {
  for (const auto& [pair, send] : sends_) {
    forget_send(context_, pair);
    context_.lineage.forget(budget, pair);
  }
  for (const autograd::Node* recv : recvs_) {
    context_.lineage.forget(budget, static_cast<const RecvNode*>(recv)->info().pair);
  }
  context_.recv_count -= std::min(context_.recv_count, recvs_.size());
}

}  // namespace distag
