#pragma once

#include <cstdint>
#include <vector>

#include "autograd/node.h"

namespace distag::autograd {

// Maps a node to its number in a pass by open addressing, since a pass looks up each edge twice.
class NodeIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t find(const Node* node) const;
  void add(const Node* node, uint32_t number);  // not there yet

 private:
  struct Slot {
    const Node* node = nullptr;
    uint32_t number = 0;
  };
  size_t start(const Node* node) const;
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(32);  // a power of two, at most half full
  size_t count_ = 0;
};

}  // namespace distag::autograd
