#pragma once

#include <cstddef>

namespace distag {

// How much lineage is kept and sent. If records_per_context is 0, nothing is, and each pass searches.
struct LineageLimits {
  size_t origins_per_slot = 64;  // more: the slot is open
  size_t links_per_message = 100;
  size_t records_per_context = 4096;
  size_t records_per_worker = 65536;
};

}  // namespace distag
