#include "autograd/node_index.h"

#include <utility>

namespace distag::autograd {

size_t NodeIndex::start(const Node* node) const {
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(node));
  return static_cast<size_t>((address * 0x9E3779B97F4A7C15u) >> 32) & (slots_.size() - 1);
}

uint32_t NodeIndex::find(const Node* node) const {
  for (size_t i = start(node);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].node == node) return slots_[i].number;
    if (slots_[i].node == nullptr) return kNone;
  }
}

void NodeIndex::add(const Node* node, uint32_t number) {
  if (2 * (count_ + 1) > slots_.size()) grow();
  size_t i = start(node);
  while (slots_[i].node != nullptr) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {node, number};
  ++count_;
}

void NodeIndex::grow() {
  std::vector<Slot> old(slots_.size() * 4);
  old.swap(slots_);
  count_ = 0;
  for (const Slot& slot : old) {
    if (slot.node != nullptr) add(slot.node, slot.number);
  }
}

}  // namespace distag::autograd
