#pragma once

#include <string>

#include "coll/mesh.h"

namespace distag {

// A report in JSON, for people and tools; include/distag.h names the keys. Without a worker there is only a shape.
std::string write_report(const layout::MeshShape& shape, const Mesh* mesh, const MeshSnapshot& snapshot);

}  // namespace distag
