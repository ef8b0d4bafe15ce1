#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/node.h"
#include "base/ids.h"

namespace distag {

// A half of a pair: the facts that both kinds of nodes have.
struct PairInfo {
  Id pair;
  Id context;
  uint64_t context_number = 0;  // for people
  Incarnation peer = 0;         // has the other half
  std::string call;             // `call "embed" on "ps1"`; of gradients: all that describe() says
  bool is_answer = false;
  bool is_gradient = false;  // made by a GRAD

  std::string describe() const {
    if (is_gradient) return call;
    return (is_answer ? "the result of " : "the arguments of ") + call;
  }
};

// Values that require grad left this worker here: a gradient comes for each, and goes on to where the value came from.
class SendNode final : public autograd::Node {
 public:
  struct Slot {
    Dims shape;
    Dtype dtype;
  };
  SendNode(PairInfo info, std::vector<autograd::Edge> next, std::vector<Slot> slots)
      : Node(Kind::kSend, std::move(next), static_cast<uint32_t>(slots.size())),
        info_(std::move(info)),
        metadata_(std::move(slots)) {}
  std::string name() const override { return info_.describe(); }
  const PairInfo& info() const { return info_; }
  const std::vector<Slot>& metadata() const { return metadata_; }

  // Whether a gradient has ever come for it, for reports. On the loop.
  bool has_fired() const { return has_fired_; }
  void note_fired() { has_fired_ = true; }

 private:
  const PairInfo info_;
  const std::vector<Slot> metadata_;
  bool has_fired_ = false;
};

// Values that require grad came in here: their gradients go to the send they left by.
class RecvNode final : public autograd::Node, public std::enable_shared_from_this<RecvNode> {
 public:
  RecvNode(PairInfo info, uint32_t slots) : Node(Kind::kRecv, {}, slots), info_(std::move(info)), one_{info_.pair, 0} {
    if (slots == 1) return;
    many_ = std::make_unique<autograd::Origin[]>(slots);
    for (uint32_t slot = 0; slot < slots; ++slot) many_[slot] = {info_.pair, slot};
  }
  std::string name() const override { return info_.describe(); }
  const PairInfo& info() const { return info_; }

 private:
  // Keeps this node alive, for as long as something depends on it.
  autograd::Origins origins_of_recv(uint32_t slot) const override {
    const autograd::Origin* origin = many_ == nullptr ? &one_ : &many_[slot];
    return {std::shared_ptr<const autograd::Origin[]>(shared_from_this(), origin), 0};
  }

  const PairInfo info_;
  const autograd::Origin one_;  // for the only slot, the usual case
  std::unique_ptr<autograd::Origin[]> many_;
};

}  // namespace distag
