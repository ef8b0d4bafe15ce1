#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spmd/nodes.h"

namespace distag::spmd {

// The gradients that came in at entries, and that members declared equal along some axes of the mesh. Members note
// them in one order and compare them at the end of a joint pass.
class GradientClaims {
 public:
  // Does nothing if no member claims the like.
  void note(const ShardedNode& entry, const Tensor& gradient);
  // The failure of the pass, alike on all members, if members that claim to bring the same gradient have brought
  // others. Without a check if a member `has_failed`, as its later gradients are missing. Sends if there are claims;
  // throws the error of the mesh if that has ended.
  std::optional<Error> compare(CallOnLine& call, bool has_failed) const;

 private:
  struct Claim {
    uint64_t call = 0;
    layout::Axes axes;  // the axes over which they claim it
    uint64_t hash = 0;
  };

  std::vector<Claim> claims_;
};

}  // namespace distag::spmd
