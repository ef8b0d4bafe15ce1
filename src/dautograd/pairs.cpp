#include "dautograd/pairs.h"

#include <utility>

#include "autograd/autograd.h"
#include "base/violation.h"

namespace distag {
namespace {

// The marked tensors of a message that came. Throws PROTOCOL when the marks do not fit.
Tensors take_marked(const std::vector<bool>& marks, const std::vector<const Value*>& values) {
  Tensors result;
  size_t count = 0;
  for (const Value* value : values) {
    value->for_each_tensor([&](const Tensor& tensor) {
      if (count < marks.size() && marks[count]) result.push_back(tensor);
      ++count;
    });
  }
  if (count != marks.size() || result.empty()) {
    violation("{} tensors came, {} are said to, of which {} require grad", count, marks.size(), result.size());
  }
  for (const Tensor& tensor : result) {
    if (!is_floating(tensor.dtype())) violation("{} cannot require grad", describe(tensor));
  }
  return result;
}

}  // namespace

Tracked find_tracked(const std::vector<const Value*>& values) {
  Tracked result;
  for (const Value* value : values) {
    value->for_each_tensor([&result](const Tensor& tensor) {
      result.marks.push_back(autograd::requires_grad(tensor));
      if (result.marks.back()) result.tensors.push_back(tensor);
    });
  }
  return result;
}

std::shared_ptr<SendNode> make_send(PairInfo info, const Tensors& tensors) {
  std::vector<autograd::Edge> next;
  std::vector<SendNode::Slot> slots;
  next.reserve(tensors.size());
  slots.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    next.push_back(autograd::gradient_edge(tensor));
    slots.push_back({tensor.shape(), tensor.dtype()});
  }
  return std::make_shared<SendNode>(std::move(info), std::move(next), std::move(slots));
}

void make_recv(PairInfo info, const std::vector<bool>& marks, const std::vector<const Value*>& values) {
  const Tensors tensors = take_marked(marks, values);
  auto recv = std::make_shared<RecvNode>(std::move(info), static_cast<uint32_t>(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    autograd::set_history(tensors[i], autograd::Edge{recv, static_cast<uint32_t>(i)});
  }
}

}  // namespace distag
