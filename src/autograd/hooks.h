#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "autograd/autograd.h"
#include "autograd/node.h"
#include "autograd/recordable.h"
#include "base/mutex.h"

namespace distag::autograd {

// The hooks of one tensor, in the order they were added. Thread-safe.
class HookList {
 public:
  uint64_t add(Hook hook);
  bool remove(uint64_t id);  // false: no such hook
  std::vector<std::shared_ptr<const Hook>> all() const;

 private:
  mutable Mutex mutex_;
  uint64_t last_id_ GUARDED_BY(mutex_) = 0;
  std::vector<std::pair<uint64_t, std::shared_ptr<const Hook>>> hooks_ GUARDED_BY(mutex_);
};

// Stands before the node of a tensor with hooks. Everything computed from the tensor sends its gradient here, so the
// hooks see the whole gradient.
class HookNode final : public Node, public RecordableNode {
 public:
  HookNode(Edge next, std::shared_ptr<HookList> hooks, const Tensor& tensor);

  std::string name() const override { return name_; }
  bool is_host_code() const override { return true; }
  // Whether its tensor is sharded.
  bool is_joint() const override {
    const Node& target = *next().at(0).node;
    return target.is_joint() && target.as_entry() == nullptr;
  }
  Tensors backward(SavedData& saved, Tensors gradients) override;
  // Hooks see a gradient with its history, and what they give in its place keeps its own.
  bool is_recordable() const override { return true; }
  Tensors recorded_backward(const Edge& output, SavedData& saved, Tensors gradients) override;
  // A hook has no data that a pass could free.
  void free_saved() override {}
  // Whether its edges are gone, or go now: a thread that found the node through the tensor makes another.
  bool is_retired() const;

 private:
  bool retire(const std::shared_ptr<Node>& holder) override;
  void check(const Tensor& gradient) const;

  const std::shared_ptr<HookList> hooks_;
  const std::string name_;
  const Dims shape_;
  const Dtype dtype_;
  mutable Mutex mutex_;
  bool is_retired_ GUARDED_BY(mutex_) = false;
};

}  // namespace distag::autograd
