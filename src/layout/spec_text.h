#pragma once

#include <string>
#include <string_view>

#include "layout/spec.h"

namespace distag::layout {

// The numbers equal those of distag_spec_form.
enum class SpecForm : int32_t {
  kTuple = 1,       // ('x', None) sum('y')
  kPlacements = 2,  // S(0), P(sum)
  kHlo = 3,         // {devices=[3,1,2]0,1,2,3,4,5 last_tile_dim_replicate}
  kHloIota = 4,     // {devices=[2,2]<=[4]}
  kShardy = 5,      // sharding<@mesh, [{"x"}, {}], unreduced={"y"}>
};

// The spec that a text in any of the forms describes, for tensors of `rank` dims. Throws INVALID_ARGUMENT, which names
// the text, the position and the reason; UNSUPPORTED for parts of a form that no Spec can express.
Spec parse_spec(const MeshShape& mesh, std::string_view text, size_t rank);
// Throws UNSUPPORTED for a spec that the form cannot express.
std::string print_spec(const MeshShape& mesh, const Spec& spec, SpecForm form = SpecForm::kTuple);

// The axes in a list: "data", "('x', 'y')"; the same syntax as an item of a spec.
Axes parse_axes(const MeshShape& mesh, std::string_view text);

}  // namespace distag::layout
