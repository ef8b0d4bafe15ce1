#include "autograd/hooks.h"

#include <algorithm>

#include "autograd/history.h"
#include "base/error.h"
#include "base/mutex.h"

namespace distag::autograd {

uint64_t HookList::add(Hook hook) {
  auto shared = std::make_shared<const Hook>(std::move(hook));
  MutexLock lock(mutex_);
  hooks_.emplace_back(++last_id_, std::move(shared));
  return last_id_;
}

bool HookList::remove(uint64_t id) {
  std::shared_ptr<const Hook> gone;  // outside of the lock: what it holds is the host's
  MutexLock lock(mutex_);
  const auto found = std::find_if(hooks_.begin(), hooks_.end(), [id](const auto& hook) { return hook.first == id; });
  if (found == hooks_.end()) return false;
  gone = std::move(found->second);
  hooks_.erase(found);
  return true;
}

std::vector<std::shared_ptr<const Hook>> HookList::all() const {
  std::vector<std::shared_ptr<const Hook>> hooks;
  MutexLock lock(mutex_);
  for (const auto& [id, hook] : hooks_) hooks.push_back(hook);
  return hooks;
}

HookNode::HookNode(Edge next, std::shared_ptr<HookList> hooks, const Tensor& tensor)
    : Node(Kind::kFunction, {std::move(next)}, 1),
      hooks_(std::move(hooks)),
      name_(fmt::format("hook of tensor {} ({})", tensor.id(), describe(tensor))),
      shape_(tensor.shape()),
      dtype_(tensor.dtype()) {
  set_saved(std::make_shared<SavedData>());
}

Tensors HookNode::backward(SavedData&, Tensors gradients) {
  for (const auto& hook : hooks_->all()) {
    // The host may write to both: snapshots keep its writes from showing.
    const Tensor replacement = (*hook)(gradients[0].snapshot());
    if (!replacement) continue;
    check(replacement);
    gradients[0] = replacement.snapshot();
  }
  return gradients;
}

Tensors HookNode::recorded_backward(const Edge&, SavedData&, Tensors gradients) {
  for (const auto& hook : hooks_->all()) {
    const Tensor replacement = (*hook)(with_history_of(gradients[0], gradients[0].snapshot()));
    if (!replacement) continue;
    check(replacement);
    gradients[0] = with_history_of(replacement, replacement.snapshot());
  }
  return gradients;
}

// Under the mutex: a thread that finds the node meanwhile either calls is_retired() later, or its reference is counted.
bool HookNode::retire(const std::shared_ptr<Node>& holder) {
  MutexLock lock(mutex_);
  is_retired_ = Node::retire(holder);
  return is_retired_;
}

bool HookNode::is_retired() const {
  MutexLock lock(mutex_);
  return is_retired_;
}

void HookNode::check(const Tensor& gradient) const {
  if (gradient.shape() == shape_ && gradient.dtype() == dtype_) return;
  fail(Status::kInvalidArgument, "gave {} as gradient of {}{}", describe(gradient), dtype_name(dtype_),
       to_string(shape_));
}

}  // namespace distag::autograd
