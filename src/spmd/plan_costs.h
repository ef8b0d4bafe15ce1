#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/mesh_shape.h"
#include "spmd/plan_elimination.h"

namespace distag::spmd {

// The time of exchanges and arithmetic in whole picoseconds: so plans are the same on unlike machines. By default 80 us
// and 1 ns a byte for an exchange, and 10^10 operations a second.
//
// A JSON text sets other costs: {"alpha": seconds, "beta": seconds a byte, "rate": operations a second, 0 for free
// computing, "outer": {"alpha", "beta"} of axes along which members are of several granules, "axes": {NAME: {"alpha",
// "beta"}}}. A named axis goes before "outer". Either may leave out a number, and then has that of all axes.
class PlanCosts {
 public:
  // Throws INVALID_ARGUMENT naming the place.
  PlanCosts(const layout::MeshShape& mesh, const std::optional<std::string>& text);

  // The time of an exchange in which the member that gets most gets `bytes`; of several axes the most expensive counts.
  Picoseconds exchange(layout::AxisSet axes, uint64_t bytes) const;
  Picoseconds exchange(layout::AxisSet axes) const { return exchange(axes, 0); }
  Picoseconds transport(layout::AxisSet axes, uint64_t bytes) const;  // the part of the time for the bytes
  Picoseconds computing(uint64_t operations) const;
  // The costs of each axis, as JSON.
  const std::string& report() const { return report_; }

 private:
  struct Link {
    double alpha = 80e-6;
    double beta = 1e-9;
    Picoseconds start = 0;
    uint64_t per_mebibyte = 0;
  };

  std::vector<Link> links_;  // of each axis
  uint64_t per_giga_ = 0;    // picoseconds for 10^9 operations
  std::string report_;
};

}  // namespace distag::spmd
