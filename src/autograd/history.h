#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "autograd/hooks.h"
#include "autograd/node.h"
#include "base/mutex.h"
#include "tensor/tensor.h"

namespace distag::autograd {

// Takes the gradient of a leaf tensor, and keeps the tensor alive: so a gradient outlives the handles of its tensor.
class LeafNode final : public Node {
 public:
  explicit LeafNode(Tensor tensor) : Node(Kind::kLeaf, {}, 1), tensor_(following(std::move(tensor))) {}
  std::string name() const override { return "leaf"; }
  bool is_joint() const override { return tensor_.shard_slot() != nullptr; }
  const Tensor& tensor() const { return tensor_; }

 private:
  // Does not hold the values of this moment: the leaf goes on changing.
  static Tensor following(Tensor tensor) {
    tensor.drop_hold();
    return tensor;
  }

  const Tensor tensor_;
};

// The state of this layer in the slot of a tensor that requires grad, or once did: where it came from, or, for a leaf,
// the node that takes its gradient. A leaf holds that node weakly, since the node holds the leaf. Thread-safe.
class History final : public GradSlot {
 public:
  History() = default;  // for a leaf
  explicit History(Edge edge) : edge_(std::move(edge)) {}

  bool is_leaf() const { return edge_.node == nullptr; }
  // Whether its tensor requires grad; always, unless it is a leaf.
  bool requires_grad() const { return requires_grad_.load(std::memory_order_acquire); }
  // For a leaf only. False removes its hooks.
  void set_requires_grad(bool requires_grad);
  // No node when the tensor does not require grad.
  Edge edge(const Tensor& tensor);

  uint64_t add_hook(Hook hook);   // 0: its tensor does not require grad
  bool remove_hook(uint64_t id);  // false: no such hook

 private:
  Edge leaf_edge(const Tensor& tensor) REQUIRES(mutex_);

  const Edge edge_{};
  std::atomic<bool> requires_grad_{true};  // changed under the mutex
  std::atomic<bool> has_hooks_{false};     // likewise
  Mutex mutex_;                            // graphs may be recorded from one tensor by several threads
  std::weak_ptr<LeafNode> leaf_ GUARDED_BY(mutex_);
  std::shared_ptr<HookList> hooks_ GUARDED_BY(mutex_);
  std::weak_ptr<HookNode> hook_node_ GUARDED_BY(mutex_);  // held by what was recorded
};

// Gives the history of `original` to `copy`, a new tensor with the same values, and returns `copy`.
Tensor with_history_of(const Tensor& original, Tensor copy);

}  // namespace distag::autograd
