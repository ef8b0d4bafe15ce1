#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/mesh_shape.h"
#include "spmd/plan_elimination.h"

namespace distag::spmd {

// What exchanges and arithmetic take, in whole picoseconds: so plans are the same on unlike machines. By default 80 us
// and 1 ns a byte for an exchange, and 10^10 operations a second.
//
// A text, JSON, says otherwise: {"alpha": seconds, "beta": seconds a byte, "rate": operations a second, 0 for computing
// that is free, "outer": {"alpha", "beta"} of axes along which members are of several granules, "axes": {NAME:
// {"alpha", "beta"}}}. An axis that is named goes before "outer", and what one of them leaves out is that of all axes.
class PlanCosts {
 public:
  // Throws INVALID_ARGUMENT naming the place.
  PlanCosts(const layout::MeshShape& mesh, const std::optional<std::string>& text);

  // Of one that brings the member that gets most this number of bytes; of several axes the dearest counts.
  Picoseconds exchange(layout::AxisSet axes, uint64_t bytes) const;
  Picoseconds exchange(layout::AxisSet axes) const { return exchange(axes, 0); }
  Picoseconds transport(layout::AxisSet axes, uint64_t bytes) const;  // the part of the bytes
  Picoseconds computing(uint64_t operations) const;
  // What holds for each axis, as JSON.
  const std::string& report() const { return report_; }

 private:
  struct Link {
    double alpha = 80e-6;
    double beta = 1e-9;
    Picoseconds start = 0;
    uint64_t per_mebibyte = 0;
  };

  std::vector<Link> links_;  // of each axis
  uint64_t per_giga_ = 0;    // picoseconds of 10^9 operations
  std::string report_;
};

}  // namespace distag::spmd
