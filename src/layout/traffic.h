#pragma once

#include "layout/move.h"

namespace distag::layout {

// Sum of two that are not negative; INT64_MAX if it is more.
inline int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

// Bytes of elements between a member and other members. Collectives send as these rules say, and plans use them to
// predict the traffic of a step.
struct Traffic {
  int64_t sent = 0;
  int64_t received = 0;
  Traffic& operator+=(const Traffic& other) {
    sent = saturating_sum(sent, other.sent);
    received = saturating_sum(received, other.received);
    return *this;
  }
};

// Up to this many bytes of all members together, each member sums whole operands; above, members sum chunks.
inline constexpr int64_t kMostDirectBytes = 512 << 10;
inline bool is_reduced_directly(int64_t members, int64_t bytes) { return bytes <= kMostDirectBytes / members; }

// For an all_reduce of `count` elements; `index` is the member's index among the members.
Traffic traffic_of_all_reduce(int64_t count, int64_t item_size, int64_t members, int64_t index);
Traffic traffic_of_all_gather(int64_t count, int64_t item_size, int64_t members);
// For the move of a tensor of this shape; `position` is the member's position.
Traffic traffic_of(const MeshShape& mesh, const Dims& shape, const Move& move, int64_t item_size, int64_t position);

}  // namespace distag::layout
