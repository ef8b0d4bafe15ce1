#pragma once

#include "tensor/tensor.h"

namespace distag {

// Whether the tensor is a dtype and a shape that never gets elements: it has a slot, but lies on no mesh.
inline bool is_shape_only(const Tensor& tensor) {
  const ShardSlot* slot = tensor ? tensor.shard_slot() : nullptr;
  return slot != nullptr && slot->mesh() == nullptr;
}

// Throws INVALID_STATE for a tensor that is a shape only; an undefined one passes.
inline void check_not_shape_only(const Tensor& tensor) {
  if (is_shape_only(tensor)) tensor.shard_slot()->whole();
}

}  // namespace distag
