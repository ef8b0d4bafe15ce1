#include "base/clock.h"

#include <ctime>

namespace distag {

Nanos SteadyClock::now() const {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<Nanos>(time.tv_sec) * kSecond + time.tv_nsec;
}

}  // namespace distag
