#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/flight_recorder.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/parker.h"
#include "base/task.h"
#include "base/timings.h"
#include "base/trace_event.h"
#include "base/trace_parent.h"

namespace distag {

// The events of one worker until they are written: a bounded buffer, so that a slow disk holds nothing up. Any thread.
// Costs one load of an atomic as long as it is off; calls, passes and collectives that end are kept by the recorder
// all the same.
class Trace {
 public:
  Trace() = default;
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool is_on() const noexcept { return is_on_.load(std::memory_order_relaxed); }

  // Keeps the event, or counts it as dropped when there is no room. Texts are cut to 255 bytes. `trace_id`: of the
  // host's tracer.
  void add(TraceEvent event, std::string_view name, std::string_view peer = {},
           std::string_view trace_id = {}) noexcept;
  // For a span that has no id of its own.
  Id next_span() noexcept { return {0, last_span_.fetch_add(1, std::memory_order_relaxed) + 1}; }
  void add_instant(TraceCategory category, std::string_view text) noexcept;

  // Adds a call, pass or collective that has ended to recorder and timings; while the trace is on, also as a span,
  // which gets an id if it has none.
  void add_ended(TraceEvent event, std::string_view name, std::string_view peer = {},
                 std::string_view trace_id = {}) noexcept;
  // Adds to recorder and timings alone.
  void keep(const TraceEvent& event, std::string_view name, std::string_view peer = {}) noexcept;
  // Events added here directly are not timed, and cause no on_break.
  FlightRecorder& recorder() { return recorder_; }
  // Counts all that came by add_ended() and keep().
  const Timings& timings() const { return timings_; }
  // Called when one has ended with DEADLINE, DISCONNECTED or DIVERGED, on its thread. Set before the first event; must
  // not throw.
  void set_on_break(UniqueFunction<void()> on_break) { on_break_ = std::move(on_break); }

  // ---- for the writer ----

  // Makes the buffers. Throws bad_alloc.
  void open(Parker& wake);
  // Takes no further event; those in the buffer may still be taken.
  void close() noexcept;
  // Swaps the events of the buffer for `events`, emptied but with room. `dropped`: since the last call.
  void take(std::string& events, uint64_t& dropped) noexcept;

  static constexpr size_t kBufferSize = size_t{4} << 20;

 private:
  std::atomic<bool> is_on_{false};
  std::atomic<uint64_t> last_span_{0};
  FlightRecorder recorder_;
  Timings timings_;
  UniqueFunction<void()> on_break_;
  Mutex mutex_;
  std::string buffer_ GUARDED_BY(mutex_);
  uint64_t dropped_ GUARDED_BY(mutex_) = 0;
  Parker* wake_ GUARDED_BY(mutex_) = nullptr;
};

// The first of the events that take() gave; take_first() removes it.
struct TakenTraceEvent {
  TraceEvent event;
  std::string_view name;
  std::string_view peer;
  std::string_view trace_id;
};
TakenTraceEvent take_first(std::string_view& events);

// Whether the last events before an end with that status explain it.
inline bool is_break(Status status) {
  return status == Status::kDeadline || status == Status::kDisconnected || status == Status::kDiverged;
}

// The running thread, as the system numbers it.
uint32_t current_thread_number() noexcept;

// The name that the system shows for a thread of this process; empty: it has ended.
std::string name_of_thread(uint32_t number);

// A slice from here to the end of the scope. Does nothing if the trace is off at its beginning.
class TraceScope {
 public:
  TraceScope(Trace& trace, TraceCategory category, std::string_view name, std::string_view peer = {}) noexcept
      : trace_(trace.is_on() ? &trace : nullptr) {
    if (trace_ != nullptr) begin(category, name, peer);
  }
  ~TraceScope() {
    if (trace_ != nullptr) end();
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  bool is_on() const { return trace_ != nullptr; }
  void set_flow(TraceEvent::Flow flow, TraceCategory category, const Id& id) {
    event_.flow = flow;
    event_.flow_category = category;
    event_.id = id;
  }
  void set_bytes(uint64_t bytes) { event_.bytes = bytes; }
  // nullptr: none.
  void set_trace_parent(const TraceParent* trace_parent) noexcept {
    if (trace_ == nullptr || trace_parent == nullptr) return;
    trace_id_size_ = trace_parent->trace_id().copy(trace_id_, sizeof trace_id_);
  }
  void set_queued_since(Nanos when) { event_.queued = event_.begin > when ? event_.begin - when : 0; }

 private:
  void begin(TraceCategory category, std::string_view name, std::string_view peer) noexcept;
  void end() noexcept;

  Trace* const trace_;
  TraceEvent event_;
  char name_[128];  // copied: what is named may end within the scope
  char peer_[128];
  char trace_id_[32];
  size_t name_size_ = 0;
  size_t peer_size_ = 0;
  size_t trace_id_size_ = 0;
};

}  // namespace distag
