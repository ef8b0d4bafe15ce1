#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/mesh_shape.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"

namespace distag::spmd {

// What the report of a plan says of a leaf.
struct ReportedLeaf {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  Dims shape;
  std::string spec;
  std::string why;
};

std::string write_plan_report(const layout::MeshShape& mesh, const std::vector<ReportedLeaf>& leaves, uint64_t memory);

// Of a text that may be anything: throws INVALID_ARGUMENT unless it is the report of a plan for this mesh.
std::vector<ReportedLeaf> read_plan_report(const layout::MeshShape& mesh, const std::string& text);

}  // namespace distag::spmd
