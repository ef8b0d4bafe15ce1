#pragma once

#include <memory>
#include <vector>

#include "dautograd/nodes.h"
#include "tensor/value.h"

namespace distag {

// The tensors of a message that require grad, and which of all of them those are.
struct Tracked {
  Tensors tensors;
  std::vector<bool> marks;
};
Tracked find_tracked(const std::vector<const Value*>& values);

// The send of the pair by which these tensors leave.
std::shared_ptr<SendNode> make_send(PairInfo info, const Tensors& tensors);

// Gives the tensors of a message that are marked as their history the recv of its pair. Throws Violation where the
// marks do not fit; none has a history then.
void make_recv(PairInfo info, const std::vector<bool>& marks, const std::vector<const Value*>& values);

}  // namespace distag
