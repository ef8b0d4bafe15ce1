#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace distag {

// A call that is not over, for reports.
struct OpenCall {
  enum class Stage {
    kQueued,    // made here, and not sent yet
    kSent,      // made here
    kWaiting,   // served here: the function has not begun
    kRunning,   // served here
    kDeferred,  // served here: the function has returned and owes the answer
  };

  Stage stage;
  std::string function;
  std::string label;
  std::string peer;  // the other side
  int32_t peer_rank = -1;
  Id context;  // {0,0}: none
  Nanos age = 0;
  Nanos time_left = kForever;
  std::string within = {};  // for a call made here: the function that made it, if the host named it
};

// The oldest `most` calls in a table by id. Of a table that is larger than a thread can scan in a millisecond, the
// oldest of a part. `begun` returns the start time of a call.
template <typename Table, typename Begun>
auto oldest_of(const Table& table, size_t most, const Begun& begun) {
  constexpr size_t kMostSeen = 16384;
  std::vector<typename Table::mapped_type::element_type*> calls;
  calls.reserve(std::min(table.size(), kMostSeen));
  for (const auto& [id, call] : table) {
    if (calls.size() == kMostSeen) break;
    calls.push_back(call.get());
  }
  const auto end = calls.begin() + static_cast<ptrdiff_t>(std::min(most, calls.size()));
  std::partial_sort(calls.begin(), end, calls.end(),
                    [&begun](const auto* a, const auto* b) { return begun(*a) < begun(*b); });
  calls.erase(end, calls.end());
  return calls;
}

}  // namespace distag
