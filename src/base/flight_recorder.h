#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/trace_event.h"

namespace distag {

// A call, pass or collective that has ended, as the recorder kept it.
struct FlightEvent {
  TraceCategory category = TraceCategory::kCall;
  Status status = Status::kOk;
  Nanos begin = 0;
  Nanos end = 0;
  uint64_t bytes = 0;
  std::string name;
  std::string peer;
};

// The last events of one worker, kept whether or not a trace is written: a ring of fixed size, so that an event costs
// one short write and no memory. Any thread.
class FlightRecorder {
 public:
  static constexpr size_t kMost = 1000;
  static constexpr size_t kTextSize = 96;       // for both names of an event; the rest is cut
  static constexpr size_t kLeastPeerSize = 32;  // a long name leaves this much for the peer

  FlightRecorder();  // throws bad_alloc
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  void add(const TraceEvent& event, std::string_view name, std::string_view peer) noexcept;

  // The last events, at most `most`, the latest one at the end. Throws bad_alloc.
  std::vector<FlightEvent> last(size_t most) const;
  // The number of events added, including those that are no longer kept.
  uint64_t count() const noexcept;

 private:
  // 128 bytes. No initialisers, so that unused memory is never touched.
  struct Slot {
    Nanos begin;
    Nanos end;
    uint64_t bytes;
    Status status;
    TraceCategory category;
    uint8_t name_size;
    uint8_t peer_size;
    char text[kTextSize];
  };

  const std::unique_ptr<Slot[]> slots_;
  mutable Mutex mutex_;
  uint64_t count_ GUARDED_BY(mutex_) = 0;  // and the slots
};

}  // namespace distag
