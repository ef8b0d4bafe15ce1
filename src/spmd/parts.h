#pragma once

#include <vector>

#include "layout/spec.h"

namespace distag::spmd {

// The shape of the whole tensor; `parts` has one shape of each member by position. Throws INVALID_ARGUMENT with all of
// them when no shape fits them; `what` names the call.
Dims shape_of_parts(const layout::MeshShape& mesh, const layout::Spec& spec, const std::vector<Dims>& parts,
                    const char* what);

}  // namespace distag::spmd
