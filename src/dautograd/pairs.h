#pragma once

#include <memory>
#include <vector>

#include "dautograd/nodes.h"
#include "tensor/value.h"

namespace distag {

// The tensors of a message that require grad, and a mark for each tensor of the message.
struct Tracked {
  Tensors tensors;
  std::vector<bool> marks;
};
Tracked find_tracked(const std::vector<const Value*>& values);

// Makes the send of the pair by which these tensors leave.
std::shared_ptr<SendNode> make_send(PairInfo info, const Tensors& tensors);

// Gives the marked tensors of a message the recv of its pair as their history. Throws Violation if the marks do not
// fit; then no tensor gets a history.
void make_recv(PairInfo info, const std::vector<bool>& marks, const std::vector<const Value*>& values);

}  // namespace distag
