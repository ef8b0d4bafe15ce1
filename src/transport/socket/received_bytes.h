#pragma once

#include <cstdint>

namespace distag {

// The bytes that the system has received for a tcp connection; 0 if it does not count them, as for ipc.
uint64_t received_bytes(int socket);

}  // namespace distag
