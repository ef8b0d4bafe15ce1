#include "transport/socket/sodium.h"

#include <sodium.h>

#include "base/error.h"

namespace distag {

void start_sodium() {
  if (sodium_init() < 0) fail(Status::kUnsupported, "libsodium finds no source of random numbers on this system");
}

void wipe(CurveKey& secret) { sodium_memzero(secret.data(), secret.size()); }

}  // namespace distag
