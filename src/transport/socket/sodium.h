#pragma once

#include "transport/security.h"

namespace distag {

// Before anything of libsodium. Throws UNSUPPORTED where there are no random numbers.
void start_sodium();

void wipe(CurveKey& secret);

}  // namespace distag
