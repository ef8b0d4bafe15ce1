#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "autograd/node.h"
#include "ops/op.h"
#include "tensor/tensor.h"

namespace distag::autograd {

// 1 also for what was computed from a tensor that requires grad.
bool requires_grad(const Tensor& tensor);
// Throws INVALID_STATE when it has a history, INVALID_ARGUMENT when its dtype is not a floating one.
void set_requires_grad(const Tensor& tensor, bool requires_grad);
bool has_history(const Tensor& tensor);

// Where the gradient of the tensor goes: its history, or the leaf node that is made for it on demand (which keeps the
// tensor). No node when it does not require grad.
Edge gradient_edge(const Tensor& tensor);
// Makes `edge` the history of a tensor fresh out of an op or a message. Throws INVALID_STATE when it has one.
void set_history(const Tensor& tensor, Edge edge);

// Sees the whole gradient of a tensor in a pass, and gives another one in its place, or an undefined one to leave it.
// Throws Error to fail the pass.
using Hook = std::function<Tensor(const Tensor& gradient)>;
// Hooks run in the order they were added, where host code runs, and count for what is computed from the tensor from now
// on. Gives an id. Throws INVALID_STATE when it does not require grad.
uint64_t add_hook(const Tensor& tensor, Hook hook);
// Throws NOT_FOUND.
void remove_hook(const Tensor& tensor, uint64_t id);

// Up to this many bytes a tensor is cheap to work on.
inline constexpr size_t kSmallTensor = size_t{64} << 10;

// Same storage, no history: a new tensor.
Tensor detach(const Tensor& tensor);

// The slot of a sharded tensor as ops see it.
class OpPlace : public ShardSlot {
 public:
  // An op of which some input has a slot of this kind, this being the first: runs it on all members. Arguments are
  // checked. Collective; may wait.
  virtual Tensors apply(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                        bool record) = 0;
};

// Checks the arguments, runs the op, and records it if `record` and some input requires grad.
Tensors apply(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes, bool record = true);

// An op of the host's own. Inputs come without history. Backward gets undefined tensors for outputs that no gradient
// reached, and leaves those of inputs undefined that are zero. Both throw Error to fail.
struct CustomOp {
  std::string name;
  std::function<Tensors(std::span<const Tensor> inputs, size_t output_count)> forward;
  std::function<Tensors(Tensors output_gradients, size_t input_count)> backward;  // empty: no gradient
};
// Objects that the two functions hold (the host's user_data) are dropped once no pass can need backward any more; their
// owner sees to it that host code runs where it may.
Tensors apply_custom(CustomOp op, std::span<const Tensor> inputs, size_t output_count);

}  // namespace distag::autograd
