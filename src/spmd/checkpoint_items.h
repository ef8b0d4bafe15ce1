#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spmd/program.h"
#include "tensor/value.h"

// The tensors of a value that is saved, and which member writes which part of them.
namespace distag::spmd {

struct SavedTensor {
  std::string path;
  Tensor elements;  // this member's part, or all of a plain one
  Dtype dtype = Dtype::kFloat32;
  Dims shape;
  layout::Spec spec;  // without a sum
  layout::Spec from;  // as the elements lie: a sum of parts is made before they are written
  bool is_copy;       // plain: all members have it
};

struct SavedValue {
  std::string tree;
  std::vector<SavedTensor> tensors;  // by the size of their elements, then by path: in this order they are written
  std::optional<Error> failure;      // elements that this member could not have
  // For people, by path: the same on all members that save the same, as are the elements of copies where the mesh
  // checks these.
  std::map<std::string, std::string> describe(const Program& program) const;
};

// With the values of now, whatever is written later, where they are `kept`. Throws INVALID_ARGUMENT, with the path, for
// tensors of another mesh and for what is not saved.
SavedValue items_of(const Program& program, const Value& value, bool are_kept);
// Sums partial tensors, which is collective.
void sum_parts(CallOnLine& call, SavedValue& saved);

struct WrittenPart {
  size_t tensor;  // its number
  layout::Box box;
};
// The parts that the member at a position writes: all of them together are each tensor once.
std::vector<WrittenPart> parts_written_by(const layout::MeshShape& mesh, const std::vector<SavedTensor>& tensors,
                                          int64_t position);
// Row-major, in the order of the dims of the box, which lies in this member's part.
Tensor elements_of(const layout::MeshShape& mesh, const SavedTensor& tensor, const layout::Box& box, int64_t position);

}  // namespace distag::spmd
