#pragma once

#include <array>

#include "spmd/across.h"

namespace distag::spmd {

// An application of an op to a member's part, where that is another one than on the whole.
struct PartCall {
  const layout::LocalCall::Part& part;
  const ops::Attributes& attributes;
  Across& across;
};

// What members put together of each row: numbers that are reduced, or (is_gathered) come as they are.
struct Merge {
  enum class Of : uint8_t { kInput, kFloating, kFloat64, kInt64, kBool };  // the dtype; of the first input, as a float
  int64_t numbers = 0;                                                     // 0: nothing
  Of of = Of::kFloating;
  bool is_gathered = false;
  bool counts_weights = false;  // one number more where classes have weights
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
  // What those two give to `across`, one after the other.
  std::array<Merge, 2> forward_merges{};
  Merge backward_merge{};
  bool merges_for_first = false;  // in backward only where the gradient of the first input is needed
};

// There is one wherever a local call has a part.
const PartOp& find_part_op(std::string_view name);

}  // namespace distag::spmd
