#include "spmd/parts.h"

#include <fmt/format.h>

#include "base/error.h"
#include "layout/spec_text.h"

namespace distag::spmd {

Dims shape_of_parts(const layout::MeshShape& mesh, const layout::Spec& spec, const std::vector<Dims>& parts,
                    const char* what) {
  Dims shape;
  shape.resize(spec.rank());
  bool fits = true;
  for (size_t d = 0; d < spec.rank(); ++d) {
    for (const int64_t member : mesh.group_of(spec.dim(d), 0)) {
      const Dims& part = parts[static_cast<size_t>(member)];
      if (part.size() == spec.rank()) fits = !__builtin_add_overflow(shape[d], part[d], &shape[d]) && fits;
    }
  }
  std::string all;
  for (int64_t position = 0; position < mesh.count(); ++position) {
    const Dims& part = parts[static_cast<size_t>(position)];
    fits = fits && part == local_shape(mesh, spec, shape, position);
    all += fmt::format("{}rank {} has {}", all.empty() ? "" : ", ", mesh.ranks()[static_cast<size_t>(position)],
                       to_string(part));
  }
  if (!fits) {
    fail(Status::kInvalidArgument, "{}: the parts make up no tensor that lies as {}: {}", what, print_spec(mesh, spec),
         all);
  }
  return shape;
}

}  // namespace distag::spmd
