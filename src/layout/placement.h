#pragma once

#include "layout/move.h"
#include "layout/rule.h"

namespace distag::layout {

// The amount of movement that a placement needs for its inputs; lower is better.
enum class MoveClass : uint8_t {
  kNone = 1,        // no communication, except that of a merging op whose first input is cut there
  kParameters = 2,  // parameters come to the data, and partial inputs are summed
  kData = 3,        // shards of other tensors move: a hidden move
};

// The specs that an application of an op needs for its inputs, and the specs that its results then have.
struct Placement {
  std::vector<Spec> inputs;  // never partial, unless the op is linear
  std::vector<Spec> outputs;
  // The spec of each input's gradient as the backward on the members returns it, given gradients of the outputs in the
  // duals of their specs.
  std::vector<Spec> gradients;
  MoveClass moves = MoveClass::kNone;
  int64_t received = 0;  // bytes for bringing the inputs there, received by the member that receives most
};

// The cheapest placement. It depends on metadata alone, so all members choose alike. Throws what rule_of() throws.
Placement choose_placement(const MeshShape& mesh, const OpCall& call, const Rule& rule);

// Whether the parts of an input or output have different shapes on some members.
bool has_unequal_parts(const MeshShape& mesh, const OpCall& call, const Rule& rule, const Placement& placement);

// The op call of one member.
struct LocalCall {
  std::string op;
  Attributes attributes;
  double scale = 1;  // factor for the outputs
  // kLossOverWeights: the outputs are divided by the sum of the rows' weights over the axes of the partial output.
  bool is_over_weights = false;
  // Set if the output is partial and an input (a bias) does not go into the op. The first member adds that input along
  // `dim` of the output. Its gradient is the output's gradient summed over all other dims, on every member.
  struct AddedApart {
    size_t input;
    size_t dim;
    bool is_first;
  };
  std::optional<AddedApart> added_apart;
  // Set if the op on the member's part differs from the op on the whole: merged dims or rows of a table are cut, or
  // elements are counted by their place in the whole.
  struct Part {
    Axes merged;  // axes that cut merged dims, in mesh order
    Box box;      // part of the first input, or of the table
    Dims whole;   // shape of that input
  };
  std::optional<Part> part;
};
LocalCall local_call(const MeshShape& mesh, const OpCall& call, const Rule& rule, const Placement& placement,
                     int64_t position);

// The spec in which gradients are added before they are brought, once, to the dual of `own`. It is partial over each
// axis over which some gradient is; along such an axis the other gradients count at coordinate 0 only.
Spec meeting_spec(const Spec& own, std::span<const Spec> arrivals);

}  // namespace distag::layout
