#include "autograd/history.h"

#include "autograd/autograd.h"
#include "base/error.h"
#include "base/mutex.h"

namespace distag::autograd {
namespace {

// The slot holds a History and nothing else.
History* history_of(const Tensor& tensor) { return static_cast<History*>(tensor.grad_slot()); }

}  // namespace

void History::set_requires_grad(bool requires_grad) {
  std::shared_ptr<HookList> dropped;  // outside of the lock: what hooks hold is the host's
  MutexLock lock(mutex_);
  if (requires_grad == this->requires_grad()) return;
  requires_grad_.store(requires_grad, std::memory_order_release);
  has_hooks_.store(false, std::memory_order_release);
  dropped.swap(hooks_);
  leaf_.reset();
  hook_node_.reset();
}

Edge History::edge(const Tensor& tensor) {
  if (!is_leaf() && !has_hooks_.load(std::memory_order_acquire)) return edge_;
  MutexLock lock(mutex_);
  if (!requires_grad()) return {};
  if (hooks_ == nullptr) return is_leaf() ? leaf_edge(tensor) : edge_;
  std::shared_ptr<HookNode> node = hook_node_.lock();
  if (node == nullptr || node->is_retired()) {
    node = std::make_shared<HookNode>(is_leaf() ? leaf_edge(tensor) : edge_, hooks_, tensor);
    hook_node_ = node;
  }
  return Edge{std::move(node), 0};
}

uint64_t History::add_hook(Hook hook) {
  MutexLock lock(mutex_);
  if (!requires_grad()) return 0;
  if (hooks_ == nullptr) hooks_ = std::make_shared<HookList>();
  has_hooks_.store(true, std::memory_order_release);
  return hooks_->add(std::move(hook));
}

bool History::remove_hook(uint64_t id) {
  std::shared_ptr<HookList> hooks;
  {
    MutexLock lock(mutex_);
    hooks = hooks_;
  }
  return hooks != nullptr && hooks->remove(id);
}

Edge History::leaf_edge(const Tensor& tensor) {
  std::shared_ptr<LeafNode> node = leaf_.lock();
  if (node == nullptr) {
    node = std::make_shared<LeafNode>(tensor);
    leaf_ = node;
  }
  return Edge{std::move(node), 0};
}

bool requires_grad(const Tensor& tensor) {
  const History* history = tensor ? history_of(tensor) : nullptr;
  return history != nullptr && history->requires_grad();
}

bool has_history(const Tensor& tensor) {
  const History* history = tensor ? history_of(tensor) : nullptr;
  return history != nullptr && !history->is_leaf();
}

void set_requires_grad(const Tensor& tensor, bool requires_grad) {
  if (has_history(tensor)) {
    fail(Status::kInvalidState, "requires_grad: {} has a history; detach it first", describe(tensor));
  }
  if (requires_grad && !is_floating(tensor.dtype())) {
    fail(Status::kInvalidArgument, "requires_grad: {} is not of a floating dtype; cast it first", describe(tensor));
  }
  if (history_of(tensor) == nullptr && (!requires_grad || tensor.set_grad_slot(std::make_unique<History>()))) return;
  history_of(tensor)->set_requires_grad(requires_grad);
}

Edge gradient_edge(const Tensor& tensor) {
  if (!requires_grad(tensor)) return {};
  return history_of(tensor)->edge(tensor);
}

void set_history(const Tensor& tensor, Edge edge) {
  if (!tensor.set_grad_slot(std::make_unique<History>(std::move(edge)))) {
    fail(Status::kInvalidState, "{} has a history already", describe(tensor));
  }
}

uint64_t add_hook(const Tensor& tensor, Hook hook) {
  const uint64_t id = requires_grad(tensor) ? history_of(tensor)->add_hook(std::move(hook)) : 0;
  if (id == 0) fail(Status::kInvalidState, "hook: {} needs no gradient; ask for it first", describe(tensor));
  return id;
}

void remove_hook(const Tensor& tensor, uint64_t id) {
  if (requires_grad(tensor) && history_of(tensor)->remove_hook(id)) return;
  fail(Status::kNotFound, "hook: {} has no hook {}", describe(tensor), id);
}

Tensor with_history_of(const Tensor& original, Tensor copy) {
  Edge edge = gradient_edge(original);
  if (edge.node != nullptr && copy.id() != original.id()) set_history(copy, std::move(edge));
  return copy;
}

Tensor detach(const Tensor& tensor) {
  if (const ShardSlot* slot = tensor.shard_slot()) return slot->alias();
  return tensor.view(tensor.shape(), tensor.strides(), tensor.offset());
}

}  // namespace distag::autograd
