#pragma once

#include "autograd/node.h"

namespace distag::autograd {

// A second interface of those nodes that can run their backward by recorded ops, which gives gradients a history
// (create_graph).
class RecordableNode {
 public:
  virtual ~RecordableNode() = default;
  virtual bool is_recordable() const = 0;
  // As Node::backward. `output`: where gradients of forward output 0 go, which may be a hook of it.
  virtual Tensors recorded_backward(const Edge& output, Node::SavedData& saved, Tensors gradients) = 0;
};

}  // namespace distag::autograd
