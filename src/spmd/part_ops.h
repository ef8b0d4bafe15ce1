#pragma once

#include "spmd/across.h"

namespace distag::spmd {

// An application of an op to a member's part, where that is another one than on the whole.
struct PartCall {
  const layout::LocalCall::Part& part;
  const ops::Attributes& attributes;
  Across& across;
};

// An op on parts. What fails by its arguments fails before anything is sent, for all that would wait for each other.
struct PartOp {
  struct Result {
    Tensor output;
    double weights = 0;  // of this member's rows, for losses of classes
  };
  const char* name;
  // Leaves in `saved`, unless that is null, what backward needs.
  Result (*forward)(const PartCall& call, const Tensors& inputs, ops::Saved* saved);
  // The gradients of the inputs of which one is needed. nullptr: that of the op, which sends nothing.
  Tensors (*backward)(const PartCall& call, const ops::Saved& saved, const Tensor& gradient) = nullptr;
};

// There is one wherever a local call has a part.
const PartOp& find_part_op(std::string_view name);

}  // namespace distag::spmd
