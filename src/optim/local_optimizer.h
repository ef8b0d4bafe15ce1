#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "autograd/context.h"
#include "optim/settings.h"
#include "tensor/value.h"

namespace distag::optim {

// Throws INVALID_ARGUMENT unless the tensor can be a parameter: its dtype is floating, it has no history, and no two
// elements share memory.
void check_parameter(const Tensor& tensor);

// Returns the part of a sharded parameter's state, whole or deferred, that lies as the parameter's shard does; a state
// of another shape is returned unchanged. The upper layer, which knows how tensors are sharded, provides it. Throws
// INVALID_ARGUMENT for a state that is sharded otherwise.
using PartOfState = Tensor (*)(const Tensor& parameter, const Tensor& state);

// Checks the saved state of a parameter except the shapes: a map of "step" and the tensors that the rule keeps.
// `number` is the index of the parameter, for messages. Throws INVALID_ARGUMENT.
void check_saved(const Rule& rule, const Value& saved, size_t number);

// A rule and its state for some tensors of this process. For a sharded parameter, the shard is updated and the state is
// laid out like the shard. One call at a time.
class LocalOptimizer {
 public:
  // Throws INVALID_ARGUMENT for a tensor that cannot be a parameter or is given twice. Without `part_of`, the loaded
  // state of a sharded parameter has to be that of its shard.
  LocalOptimizer(const Rule& rule, Tensors parameters, PartOfState part_of = nullptr);

  const Tensors& parameters() const { return parameters_; }
  Settings& settings() { return settings_; }

  // Updates each parameter by its gradient; a parameter with an undefined gradient and its state stay as they are.
  // Updates all or throws before it has updated any: INVALID_STATE (settings that conflict, a parameter that has a
  // history by now or borrows its memory), INVALID_ARGUMENT (a gradient of another dtype or shape).
  void step(std::span<const Tensor> gradients);

  // Uses the gradients of the parameters in `gradients`.
  void step(const Gradients& gradients);
  // The ids of the parameters.
  std::vector<uint64_t> ids() const;

  // The state, as a list with a map per parameter: "step", and a tensor for each array. The tensors are snapshots.
  Value save() const;
  // Throws INVALID_ARGUMENT, and changes nothing, when `saved` does not fit the rule and the parameters.
  void load(const Value& saved);

 private:
  struct State {
    int64_t step = 0;
    std::array<Tensor, kMaxSlots> slots;  // undefined: not needed so far
  };
  // Everything that one parameter needs in a step, made before any parameter is updated.
  struct Turn {
    size_t index;
    Tensor parameter;  // the parameter or its shard
    Tensor target;     // row-major: the parameter itself, or room for a copy
    Tensor gradient;
    State next;
    uint32_t fresh = 0;
  };

  Turn prepare(size_t index, const Tensor& gradient);
  void run(Turn& turn);
  State load_state(const Value& saved, size_t index) const;

  const PartOfState part_of_;
  Settings settings_;
  Tensors parameters_;
  std::vector<State> states_;
};

}  // namespace distag::optim
