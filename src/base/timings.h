#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "base/mutex.h"
#include "base/trace_event.h"

namespace distag {

// How long the calls, passes and collectives of one worker took since its start: for metrics. Calls are counted by the
// name of their function, for the first kMostFunctions names. The memory is bounded, and untouched until used. Any
// thread; without locks once a function is known.
class Timings {
 public:
  static constexpr size_t kMostFunctions = 64;  // the rest count as one, with the name kOther
  static constexpr const char* kOther = "other";

  struct OfFunction {
    std::string name;
    Histogram::Counts made;    // from the call to its end
    Histogram::Counts queued;  // for served ones: from their arrival to the begin of the function
    Histogram::Counts served;  // from their arrival to their end
  };

  Timings();  // throws bad_alloc

  // Adds an event that has ended. A call from a peer counts if its function has begun: a peer chooses the other names.
  void add(const TraceEvent& event, std::string_view name) noexcept;

  // All functions by their first use; kOther comes last, if it was used. Throws bad_alloc.
  std::vector<OfFunction> functions() const;
  Histogram::Counts passes() const noexcept { return passes_.counts(); }  // begun here
  Histogram::Counts collectives() const noexcept { return collectives_.counts(); }

 private:
  struct Slot {
    std::array<char, 128> name;
    size_t size;
    Histogram made;
    Histogram queued;
    Histogram served;

    std::string_view text() const { return {name.data(), size}; }
  };

  Slot& slot(size_t number) const noexcept;
  Slot& slot_of(std::string_view name, std::atomic<uint8_t>& last) noexcept;
  uint8_t claim(std::string_view name, size_t place) noexcept;

  static constexpr size_t kPlaces = 2 * kMostFunctions;  // in the table: half of them stay empty

  const std::unique_ptr<std::byte[]> memory_;          // for the slots; number kMostFunctions is for kOther
  std::array<std::atomic<uint8_t>, kPlaces> table_{};  // by the hash of the name: 1 + the number of a slot; 0: none
  std::atomic<uint8_t> last_made_{0};                  // 1 + the number of a slot: mostly it is the same again
  std::atomic<uint8_t> last_served_{0};
  std::atomic<size_t> count_{0};
  Mutex mutex_;  // for new names
  Histogram passes_;
  Histogram collectives_;
};

}  // namespace distag
