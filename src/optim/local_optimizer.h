#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "autograd/context.h"
#include "optim/settings.h"
#include "tensor/value.h"

namespace distag::optim {

// Throws INVALID_ARGUMENT unless the tensor can be a parameter: of a floating dtype, without history, each element with
// a place of its own.
void check_parameter(const Tensor& tensor);

// Of what was kept of a sharded parameter, whole or deferred, the part that lies as the parameter's shard does; a state
// of another shape as it is. From above, where it is known how tensors are sharded. Throws INVALID_ARGUMENT for a state
// that is sharded otherwise.
using PartOfState = Tensor (*)(const Tensor& parameter, const Tensor& state);

// What was saved of a parameter, apart from the shapes: a map of "step", and tensors that the rule keeps. `number` is
// of the parameter, for messages. Throws INVALID_ARGUMENT.
void check_saved(const Rule& rule, const Value& saved, size_t number);

// A rule and what it keeps of each of some tensors of this process. Of a sharded one the shard is moved, and what is
// kept of it lies as it does. One call at a time.
class LocalOptimizer {
 public:
  // Throws INVALID_ARGUMENT for a tensor that cannot be a parameter, or is there twice. Without `part_of` what is
  // loaded of a sharded parameter is of its shard.
  LocalOptimizer(const Rule& rule, Tensors parameters, PartOfState part_of = nullptr);

  const Tensors& parameters() const { return parameters_; }
  Settings& settings() { return settings_; }

  // Moves each parameter by its gradient; one with an undefined gradient stays as it is, and so does what is kept of
  // it. Moves all or throws before it has moved any: INVALID_STATE (settings that do not go together, a parameter that
  // has got a history or borrows its memory), INVALID_ARGUMENT (a gradient of another dtype or shape).
  void step(std::span<const Tensor> gradients);

  // With the gradients that the parameters have there.
  void step(const Gradients& gradients);
  // The sum of their squares. Throws INVALID_STATE for one that is sharded.
  double square_norm(const Gradients& gradients) const;
  // Of the parameters.
  std::vector<uint64_t> ids() const;

  // The state, as a list with a map per parameter: "step", and a tensor for each array. The tensors are snapshots.
  Value save() const;
  // Throws INVALID_ARGUMENT, and changes nothing, when it does not fit the rule and the parameters.
  void load(const Value& saved);

 private:
  struct State {
    int64_t step = 0;
    std::array<Tensor, kMaxSlots> slots;  // undefined: not needed so far
  };
  // Everything one parameter needs in a step, made before any parameter moves.
  struct Turn {
    size_t index;
    Tensor parameter;  // or the shard of it
    Tensor target;     // row-major: the parameter itself, or room for a copy of it
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
