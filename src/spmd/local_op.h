#pragma once

#include <optional>
#include <vector>

#include "spmd/across.h"
#include "spmd/sharding.h"

namespace distag::spmd {

// A gathered parameter. An input of an op is all of it, or a part of it.
struct GatheredParameter {
  Lying origin;
  layout::Spec spec;  // as it was gathered: row-major, in a buffer of its own
};

// This member's part in an application of an op: forward, the data saved for backward, and backward.
class LocalOp {
 public:
  // `needed`: the inputs whose gradients are wanted, as in ops::Saved.
  LocalOp(std::shared_ptr<const OpPlan> plan, Tensors inputs, uint64_t needed);

  // `across`: the members that this one merges with, if it works on a part.
  Tensors run(Across& across);
  // The weights of this member's rows, added up. After run().
  Tensor weights_of_rows() const;
  // Scales by the factor of the local call; of a weighted mean, by 1 / `weights`, the weights of all rows.
  void scale_outputs(Tensors& outputs, double weights);
  // Drops saved parts of gathered parameters, which are gathered again for backward. By input; nullopt: no parameter.
  void forget_gathered(const std::vector<Dims>& shapes,
                       const std::vector<std::optional<GatheredParameter>>& parameters);

  // Called once the outputs exist and backward's data is saved.
  void drop_inputs() { inputs_.clear(); }

  // The gradient of each input, from those of the outputs, of which some may be undefined. May gather inputs again.
  Tensors run_backward(Tensors gradients, CallOnLine& call) const;

 private:
  // A saved tensor over a buffer that was dropped.
  struct Gathered {
    size_t tensor;  // of saved_
    Dims shape;
    Dims strides;
    int64_t offset;
    size_t input;
  };
  struct Source {
    size_t input;
    Dims shape;  // of the whole parameter
    GatheredParameter parameter;
  };

  Tensor bias_in_place() const;
  ops::Saved gathered_again(CallOnLine& call) const;

  std::shared_ptr<const OpPlan> plan_;
  Tensors inputs_;  // until the op is recorded
  size_t input_count_;
  double scale_;
  double weights_ = 0;  // of a part
  ops::Saved saved_;
  std::vector<Gathered> gathered_;
  std::vector<Source> sources_;
};

}  // namespace distag::spmd
