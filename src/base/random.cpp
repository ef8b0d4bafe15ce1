#include "base/random.h"

#include <sys/random.h>

#include <cerrno>

#include "base/system_error.h"

namespace distag {

uint64_t SystemRandom::next() {
  uint64_t number = 0;
  // Requests of up to 256 bytes come whole; only the time before the kernel's pool is seeded can be interrupted.
  ssize_t got = 0;
  do {
    got = getrandom(&number, sizeof number, 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof number)) {
    throw system_error("there is no random number", "getrandom", errno);
  }
  return number;
}

}  // namespace distag
