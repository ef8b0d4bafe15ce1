#pragma once

#include "layout/move.h"
#include "layout/rule.h"

namespace distag::layout {

// How far inputs have to be moved for a placement; lower is better.
enum class MoveClass : uint8_t {
  kNone = 1,        // no communication, but of what the op merges where its first input is cut
  kParameters = 2,  // parameters come to the data, and partial inputs are summed
  kData = 3,        // shards of other tensors move: a hidden move
};

// Where the inputs of an application of an op are to lie, and where its results then lie.
struct Placement {
  std::vector<Spec> inputs;  // never partial, but where the op is linear
  std::vector<Spec> outputs;
  // Of the gradient of each input as the members' own backward gives it, from gradients of the outputs in the duals of
  // their specs.
  std::vector<Spec> gradients;
  MoveClass moves = MoveClass::kNone;
  int64_t received = 0;  // bytes that bring the inputs there, of the member that gets most
};

// The cheapest placement, by metadata alone: so all members choose alike. Throws as rule_of() does.
Placement choose_placement(const MeshShape& mesh, const OpCall& call, const Rule& rule);

// Whether the parts of an input or output have other shapes on some members than on the first.
bool has_unequal_parts(const MeshShape& mesh, const OpCall& call, const Rule& rule, const Placement& placement);

// The work of one member.
struct LocalCall {
  std::string op;
  Attributes attributes;
  double scale = 1;  // by which its outputs are multiplied
  // kLossOverWeights: the outputs are divided by the weights of the rows, added up over the axes of the partial output.
  bool is_over_weights = false;
  // Where the output is partial: an input (a bias) that does not go into the op. The first member adds it along that
  // dim of the output; its gradient is the sum of the output's over all other dims, on every member.
  struct AddedApart {
    size_t input;
    size_t dim;
    bool is_first;
  };
  std::optional<AddedApart> added_apart;
  // The member's part, where the op on it is another one than on the whole: merged dims are cut, or rows of a table, or
  // elements count by their place in the whole.
  struct Part {
    Axes merged;  // that cut merged dims, in the order of the mesh
    Box box;      // of the first input, or of the table
    Dims whole;   // the shape of that input
  };
  std::optional<Part> part;
};
LocalCall local_call(const MeshShape& mesh, const OpCall& call, const Rule& rule, const Placement& placement,
                     int64_t position);

// Where gradients meet: the spec in which they are added before they are brought, once, to the dual of `own`. It is
// partial where one of them is; over such an axis the others count at coordinate 0 only.
Spec meeting_spec(const Spec& own, std::span<const Spec> arrivals);

}  // namespace distag::layout
