#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "autograd/hooks.h"
#include "autograd/node.h"
#include "tensor/tensor.h"

namespace distag::autograd {

// Takes the gradient of a leaf tensor, which it keeps alive: so a gradient outlives the handles of its tensor.
class LeafNode final : public Node {
 public:
  explicit LeafNode(Tensor tensor) : Node(Kind::kLeaf, {}, 1), tensor_(std::move(tensor)) {}
  std::string name() const override { return "leaf"; }
  const Tensor& tensor() const { return tensor_; }

 private:
  const Tensor tensor_;
};

// What this layer keeps in the slot of a tensor that requires grad: where it came from, or, for a leaf, the node that
// takes its gradient. A leaf holds that node weakly, since the node holds the leaf.
class History final : public GradSlot {
 public:
  History() = default;  // of a leaf
  explicit History(Edge edge) : edge_(std::move(edge)) {}

  bool is_leaf() const { return edge_.node == nullptr; }
  Edge edge(const Tensor& tensor);

  uint64_t add_hook(Hook hook);
  bool remove_hook(uint64_t id);  // false: there is none

 private:
  Edge leaf_edge(const Tensor& tensor);

  const Edge edge_{};
  std::atomic<bool> has_hooks_{false};
  std::mutex mutex_;  // of what follows: graphs may be recorded from one tensor by several threads
  std::weak_ptr<LeafNode> leaf_;
  std::shared_ptr<HookList> hooks_;
  std::weak_ptr<HookNode> hook_node_;  // held by what was recorded
};

}  // namespace distag::autograd
