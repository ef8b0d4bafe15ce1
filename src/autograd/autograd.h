#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "autograd/node.h"
#include "ops/op.h"
#include "tensor/tensor.h"

namespace distag::autograd {

// True also for a tensor that was computed from one that requires grad.
bool requires_grad(const Tensor& tensor);
// Throws INVALID_STATE when the tensor has a history, INVALID_ARGUMENT when its dtype is not a floating one.
void set_requires_grad(const Tensor& tensor, bool requires_grad);
bool has_history(const Tensor& tensor);

// The edge to which the gradient of the tensor goes: its history, or the leaf node that is made for it on demand (which
// keeps the tensor). No node when the tensor does not require grad.
Edge gradient_edge(const Tensor& tensor);
// Makes `edge` the history of a tensor fresh out of an op or a message. Throws INVALID_STATE when it has one already.
void set_history(const Tensor& tensor, Edge edge);

// Gets the whole gradient of a tensor in a pass. Returns a replacement, or an undefined tensor to keep the gradient.
// Throws Error to fail the pass.
using Hook = std::function<Tensor(const Tensor& gradient)>;
// Hooks run in the order they were added, where host code runs. A hook applies to what is computed from the tensor from
// now on. Returns an id. Throws INVALID_STATE when the tensor does not require grad.
uint64_t add_hook(const Tensor& tensor, Hook hook);
// Throws NOT_FOUND.
void remove_hook(const Tensor& tensor, uint64_t id);

// Up to this many bytes a tensor is cheap to work on.
inline constexpr size_t kSmallTensor = size_t{64} << 10;

// A new tensor with the same storage and no history.
Tensor detach(const Tensor& tensor);

// The slot of a sharded tensor as ops see it.
class OpPlace : public ShardSlot {
 public:
  // Runs an op on all members. Some input has a slot of this kind, and this is the first such slot. The arguments have
  // been checked. Collective; may wait.
  virtual Tensors apply(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                        bool record) = 0;
};

// Checks the arguments, runs the op, and records it if `record` and some input requires grad.
Tensors apply(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes, bool record = true);

// An op of the host. Inputs come without history. Backward gets undefined tensors for outputs that no gradient reached,
// and may leave a gradient undefined that is zero. Both functions throw Error to fail.
struct CustomOp {
  std::string name;
  std::function<Tensors(std::span<const Tensor> inputs, size_t output_count)> forward;
  std::function<Tensors(Tensors output_gradients, size_t input_count)> backward;  // empty: no gradient
};
// Objects that the two functions hold (the host's user_data) are dropped once no pass can need backward any more; their
// owner makes sure that host code runs only where it may.
Tensors apply_custom(CustomOp op, std::span<const Tensor> inputs, size_t output_count);

}  // namespace distag::autograd
