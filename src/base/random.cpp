#include "base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace distag {

uint64_t SystemRandom::next() {
  uint64_t number = 0;
  // Requests of up to 256 bytes come whole; only the time before the kernel's pool is seeded can be interrupted.
  ssize_t got = 0;
  do {
    got = getrandom(&number, sizeof number, 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof number)) {
    fail(Status::kInternal, "the operating system gave no random number: {}", std::strerror(errno));
  }
  return number;
}

}  // namespace distag
