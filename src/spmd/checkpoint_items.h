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
  Tensor elements;  // this member's part; of a plain tensor, all of it
  Dtype dtype = Dtype::kFloat32;
  Dims shape;
  layout::Spec spec;  // the spec as it is saved, without a sum
  layout::Spec from;  // the spec as it lies: sum_parts() turns one into the other
  bool is_copy;       // plain: all members have it
};

struct SavedValue {
  std::string tree;
  std::vector<SavedTensor> tensors;  // by the size of their elements, then by path: in this order they are written
  std::optional<Error> failure;      // on this member, in reading the elements
  // Descriptions for people, by path: the same on all members that save the same value. Where the mesh checks replicas,
  // they also cover the elements of copies.
  std::map<std::string, std::string> describe(const Program& program) const;
};

// `are_kept`: takes snapshots, so that later writes do not matter. Throws INVALID_ARGUMENT, with the path, for a tensor
// of another mesh, and for a value that cannot be saved.
SavedValue items_of(const Program& program, const Value& value, bool are_kept);
// Sums partial tensors, which is collective.
void sum_parts(CallOnLine& call, SavedValue& saved);

struct WrittenPart {
  size_t tensor;  // its index in SavedValue::tensors
  layout::Box box;
};
// The parts that the member at a position writes. All members together write each tensor once.
std::vector<WrittenPart> parts_written_by(const layout::MeshShape& mesh, const std::vector<SavedTensor>& tensors,
                                          int64_t position);
// The elements of a box, which lies in this member's part: row-major.
Tensor elements_of(const layout::MeshShape& mesh, const SavedTensor& tensor, const layout::Box& box, int64_t position);

}  // namespace distag::spmd
