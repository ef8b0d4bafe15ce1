#pragma once

#include <array>

#include "spmd/across.h"

namespace distag::spmd {

// An application of an op to a member's part that differs from an application to the whole.
struct PartCall {
  const layout::LocalCall::Part& part;
  const ops::Attributes& attributes;
  Across& across;
};

// The numbers of each row that members merge: they are reduced, or (is_gathered) all of them are gathered.
struct Merge {
  enum class Of : uint8_t { kInput, kFloating, kFloat64, kInt64, kBool };  // the dtype; kFloating: kInput as a float
  int64_t numbers = 0;                                                     // 0: nothing
  Of of = Of::kFloating;
  bool is_gathered = false;
  bool counts_weights = false;  // one number more if classes have weights
};

// An op on parts. A failure by arguments comes before anything is sent, as the others would wait.
struct PartOp {
  struct Result {
    Tensor output;
    double weights = 0;  // of this member's rows, for losses of classes
  };
  const char* name;
  // Saves in `saved`, unless it is null, the data for backward.
  Result (*forward)(const PartCall& call, const Tensors& inputs, ops::Saved* saved);
  // The gradients of the inputs of which one is needed. nullptr: the op's own backward, which sends nothing.
  Tensors (*backward)(const PartCall& call, const ops::Saved& saved, const Tensor& gradient) = nullptr;
  // The merges of `forward`, one after the other, and of `backward`.
  std::array<Merge, 2> forward_merges{};
  Merge backward_merge{};
  bool merges_for_first = false;  // backward merges only if the gradient of the first input is needed
};

// Exists for every local call that has a part.
const PartOp& find_part_op(std::string_view name);

}  // namespace distag::spmd
