#pragma once

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
  layout::Spec spec;
};

struct SavedValue {
  std::string tree;
  std::vector<SavedTensor> tensors;
  // The same on all members that save the same.
  uint64_t fingerprint(const layout::MeshShape& mesh) const;
};

// Partial tensors are summed first, which is collective. Throws INVALID_ARGUMENT, with the path, for tensors of another
// mesh and for what is not saved.
SavedValue items_of(const Line& line, const Value& value);

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
