#include "base/clock.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

namespace distag {

Nanos SteadyClock::now() const {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<Nanos>(time.tv_sec) * kSecond + time.tv_nsec;
}

Nanos time_left(Nanos deadline) {
  return deadline == kNever ? kForever : std::max<Nanos>(0, deadline - SteadyClock().now());
}

std::string describe_time(Nanos time) {
  if (time >= kSecond) return fmt::format("{:g} s", static_cast<double>(time) / static_cast<double>(kSecond));
  return fmt::format("{:g} ms", static_cast<double>(time) / static_cast<double>(kMillisecond));
}

}  // namespace distag
