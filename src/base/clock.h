#pragma once

#include <cstdint>
#include <string>

namespace distag {

// Time and durations in nanoseconds. A deadline is a point of the loop's clock; kNever is later than all.
using Nanos = int64_t;
inline constexpr Nanos kNever = INT64_MAX;
inline constexpr Nanos kForever = -1;  // a duration without end, as in the C API
inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() const = 0;
};

// Monotonic time of this machine.
class SteadyClock final : public Clock {
 public:
  Nanos now() const override;
};

// The point `timeout` after now, without overflow. A negative timeout never ends.
inline Nanos deadline_after(Nanos now, Nanos timeout) {
  return timeout < 0 || timeout >= kNever - now ? kNever : now + timeout;
}

// The time until `deadline` on the steady clock, not negative; kForever for kNever.
Nanos time_left(Nanos deadline);

// "2.5 s", "30 ms"
std::string describe_time(Nanos time);

}  // namespace distag
