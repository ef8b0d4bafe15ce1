#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"

namespace distag {

enum class TraceCategory : uint8_t { kCall, kAnswer, kRun, kServed, kPass, kCollective, kOptimizer, kMember, kHost };

// "call", "served", ... Static text.
const char* category_name(TraceCategory category);

// Something that took place here, from `begin` to `end` of the steady clock.
struct TraceEvent {
  enum class Kind : uint8_t {
    kSlice,   // on the thread that reports it; slices of a thread lie within each other
    kSpan,    // on no thread, named by `id`
    kInstant  // at `end`
  };
  enum class Flow : uint8_t { kNone, kOut, kIn };  // to, or from, another worker's slice with that id

  Kind kind = Kind::kSlice;
  TraceCategory category = TraceCategory::kHost;
  Flow flow = Flow::kNone;
  TraceCategory flow_category = TraceCategory::kCall;
  Status status = Status::kOk;  // with which it ended
  uint32_t thread = 0;          // as the system numbers it
  Nanos begin = 0;
  Nanos end = 0;
  Nanos queued = -1;     // before it began; negative: it was not queued, or has not begun
  bool is_part = false;  // part of a pass that another worker began
  Id id;
  uint64_t bytes = 0;
};

}  // namespace distag
