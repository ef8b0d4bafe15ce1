#pragma once

#include <span>
#include <vector>

#include "layout/rule.h"
#include "spmd/trace.h"

namespace distag::spmd {

// The recorded ops that compute some roots, and the items between them by number: first the leaves in the order of
// their first use, then the results in the order of the ops. Equal for equal programs, whatever their tensors'
// addresses and ids are. Keeps the roots.
class TracedProgram {
 public:
  static constexpr size_t kNone = SIZE_MAX;  // an input that was left out

  struct Item {
    Dtype dtype;
    Dims shape;
  };
  struct Step {
    const TracedOp* op;
    std::vector<size_t> inputs;  // items
    size_t first_output;         // the first result's item; others follow
  };

  // Throws INVALID_ARGUMENT for a root that no traced op made.
  explicit TracedProgram(std::span<const Tensor> roots);

  const Tensors& leaves() const { return leaves_; }  // the first items
  const std::vector<Item>& items() const { return items_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<size_t>& roots() const { return root_items_; }
  // A hash of ops, their settings, dtypes, shapes, what requires grad, and the flow between them. A default given or
  // left out, a number whole or not, an input left out at the end or not given: these make no difference.
  uint64_t hash() const { return hash_; }

 private:
  void find_steps(std::span<const Tensor> roots);
  void number_items(std::span<const Tensor> roots);
  void hash_all();

  const Tensors roots_;
  std::vector<size_t> root_items_;
  Tensors leaves_;
  std::vector<Item> items_;
  std::vector<Step> steps_;
  uint64_t hash_ = 0;
};

}  // namespace distag::spmd
